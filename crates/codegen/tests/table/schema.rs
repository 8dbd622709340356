//! Schemas: what parses, as which kind, what is refused and why, and the signature variants share.

use firebrand_codegen::schema::{FunctionSchema, SignatureOptions};

#[test]
fn parse_kind_and_refusals() {
    #[rustfmt::skip]
    let table = [
        ("T-1", "blend(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor", Ok("functional")),
        ("T-2", "blend_(Tensor(a!) self, Tensor other) -> Tensor(a!)", Ok("inplace")),
        ("T-3", "blend.out(Tensor self, *, Tensor(a!) out) -> Tensor(a!)", Ok("out")),
        ("T-4", "blend(Tensor x, Tensor(a!) stats) -> Tensor", Ok("mutable")),
        ("T-5", "blend.out(Tensor x, *, Tensor(b!) out, Tensor(a!) _scratch_buf) -> Tensor(b!)", Ok("scratch")),
        ("T-6", "note(Tensor self) -> ()", Ok("functional")),
        ("T-7", "blend(Tensor self) -> (Tensor)", Err("roundtrip")),
        ("T-8", "blend(Tensor self) -> Tensor a", Ok("functional")),
        ("T-9", "blend(Tensor self)->Tensor", Err("schema_syntax")),
        ("T-10", "blend(Tensor  self) -> Tensor", Err("type_unknown")),
        ("T-11", "blend(Tensor a,Tensor b) -> Tensor", Err("type_unknown")),
        ("T-12", "blend(int[2] d=[0,1]) -> Tensor", Ok("functional")),
        ("T-13", "blend(int[2] d=[0, 1]) -> Tensor", Err("arg_no_space")),
        ("T-14", "blend(int[0] d) -> Tensor", Err("roundtrip")),
        ("T-15", "blend(int d=) -> Tensor", Err("roundtrip")),
        ("T-16", "blend(int d==1) -> Tensor", Err("arg_two_equals")),
        ("T-17", "blend(Tensor?[] idx, bool[3] m, SymInt[] s, SymInt? o=None) -> Tensor", Ok("functional")),
        ("T-18", "blend_(Tensor(a!)[] self) -> ()", Ok("inplace")),
        ("T-19", "blend_(Tensor(a!)[] self) -> Tensor(a!)[]", Err("inplace_list_returns")),
        ("T-20", "blend(Tensor(a -> *) self) -> Tensor(a)[]", Ok("functional")),
        ("T-21", "blend(Tensor(a|b) self) -> Tensor", Ok("functional")),
        ("T-22", "blend(Tensor(a|b|c) self) -> Tensor", Err("roundtrip")),
        ("T-23", "blend(Tensor(a|b!) self) -> Tensor", Err("alias_mutable_set")),
        ("T-24", "blend(Tensor(a)[2] self) -> Tensor", Err("alias_position")),
        ("T-25", "blend_out(Tensor self) -> Tensor", Err("name_out_suffix")),
        ("T-26", "__iand__(Tensor(a!) self, Tensor o) -> Tensor(a!)", Ok("inplace")),
        ("T-27", "__init__(Tensor self) -> Tensor", Err("name_dunder_i")),
        ("T-28", "blend.a.b(Tensor self) -> Tensor", Ok("functional")),
        ("T-29", "blend.functional(Tensor(a!) x) -> Tensor", Err("overload_says_functional")),
        ("T-30", "blend(Tensor self, *, int x, *, int y) -> Tensor", Err("star_twice")),
        ("T-31", "blend.out(Tensor self, *, Tensor(a!) out, int x) -> Tensor(a!)", Err("arg_after_out")),
        ("T-32", "blend_(Tensor self) -> Tensor", Err("inplace_self_not_mutable")),
        ("T-33", "blend_(Tensor(a!) self) -> ()", Err("inplace_must_return_self")),
        ("T-34", "blend.out(Tensor self, *, Tensor(a!) x, Tensor(b!) y) -> Tensor(a!)", Err("out_return_count")),
        ("T-35", "blend(Tensor self) -> (Tensor(a!), Tensor)", Err("returns_mixed_mutability")),
        ("T-36", "blend(Tensor x, Tensor(a!) y) -> Tensor(a!)", Err("mutable_arg_returned")),
        ("T-37", "blend(Tensor(a!) x, Tensor self) -> Tensor", Err("mutable_before_self")),
        ("T-38", "blend_(Tensor(a!) self, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None) -> Tensor(a!)", Err("options_not_functional")),
    ];
    for (id, text, expected) in table {
        let found = text.parse::<FunctionSchema>();
        let found = found.map(|schema| {
            assert_eq!(schema.to_string(), text, "{id}");
            schema.kind().as_str()
        });
        assert_eq!(found.map_err(|e| e.kind.as_str()), expected, "{id}: {text}");
    }
}

#[test]
fn signatures() {
    const PLAIN: SignatureOptions =
        SignatureOptions { strip_default: false, strip_view_copy_name: false, keep_return_names: false };
    const STRIP_DEFAULT: SignatureOptions = SignatureOptions { strip_default: true, ..PLAIN };
    const VIEW: SignatureOptions = SignatureOptions { strip_view_copy_name: true, ..PLAIN };
    #[rustfmt::skip]
    let table = [
        ("T-39", PLAIN, "blend_(Tensor(a!) self, Tensor other, *, Scalar alpha=1) -> Tensor(a!)", "blend(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor"),
        ("T-40", STRIP_DEFAULT, "blend.out(Tensor self, *, Scalar alpha=1, Tensor(a!) out) -> Tensor(a!)", "blend(Tensor self, *, Scalar alpha) -> Tensor"),
        ("T-41", PLAIN, "blend(Tensor self, Tensor(a!) m, Tensor(b!) v, float eps=0.1) -> (Tensor y, Tensor z)", "blend(Tensor self, Tensor m, Tensor v, float eps=0.1) -> (Tensor, Tensor, Tensor, Tensor)"),
        ("T-42", PLAIN, "blend_(Tensor(a!)[] self, Scalar s) -> ()", "blend(Tensor[] self, Scalar s) -> Tensor[]"),
        ("T-43", PLAIN, "blend.s(Tensor self, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None, MemoryFormat? memory_format=None) -> Tensor", "blend(Tensor self, *, MemoryFormat? memory_format=None) -> Tensor"),
        ("T-44", PLAIN, "blend_functional.x(Tensor self) -> Tensor", "blend(Tensor self) -> Tensor"),
        ("T-45", VIEW, "warp_copy(Tensor self) -> Tensor", "warp(Tensor self) -> Tensor"),
        ("T-46", VIEW, "warp_scatter(Tensor self) -> Tensor", "warp_inverse(Tensor self) -> Tensor"),
    ];
    for (id, options, text, expected) in table {
        let schema: FunctionSchema = text.parse().expect(id);
        assert_eq!(schema.signature_with(options).to_string(), expected, "{id}: {text}");
    }
}

#[test]
fn refusals_beyond_the_table() {
    let table = [
        ("", "schema_syntax"),
        ("b(Tensor self) -> ", "type_unknown"),
        ("b(Tensor self -> Tensor", "schema_syntax"),
        ("b(d=1) -> Tensor", "arg_no_space"),
        ("b.(Tensor self) -> Tensor", "roundtrip"),
        ("__b_c__(Tensor self) -> Tensor", "inplace_self_not_mutable"),
        ("b_functional_(Tensor(a!) self) -> Tensor(a!)", "name_functional_suffix"),
        ("b(Tensor(a|b -> c|d) self) -> Tensor", "alias_both_sets"),
        ("b(Tensor(A) self) -> Tensor", "alias_syntax"),
        ("b(Tensor self, *) -> Tensor", "roundtrip"),
        ("b(int[99999999999999999999] x) -> Tensor", "roundtrip"),
    ];
    for (text, expected) in table {
        let found = text.parse::<FunctionSchema>().map(|s| s.to_string()).map_err(|e| e.kind.as_str());
        assert_eq!(found, Err(expected), "{text}");
    }
}
