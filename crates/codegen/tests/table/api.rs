//! Calling conventions: the same schema for each of its callers.

use firebrand_codegen::api::cpp::Form;
use firebrand_codegen::api::translate::{Allow, translate};
use firebrand_codegen::api::{
    Binding, TypeStyle, cpp, declaration, dispatcher, functionalization, meta, native, structured, ufunc, unboxing,
};
use firebrand_codegen::ctype::CBase;
use firebrand_codegen::native::{NativeFunction, group_views, parse};
use firebrand_codegen::schema::{FunctionSchema, Type};
use firebrand_codegen::{Dialect, Kind, names};
use std::rc::Rc;

const Q: &str = "quench.deep(Tensor self, SymInt[] shape, Scalar k=2, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None, MemoryFormat? memory_format=None) -> Tensor";
const O: &str = "kindle.out(Tensor self, Tensor? fuel=None, int[2] pad=1, *, Tensor(a!) out) -> Tensor(a!)";
const I: &str = "kindle_(Tensor(a!) self, Tensor? fuel=None) -> Tensor(a!)";
const STYLE: TypeStyle = TypeStyle { const_ref_for_mutable: false, ilistref: false };

fn schema(text: &str) -> FunctionSchema {
    text.parse().expect("a schema")
}

fn in_cpp(text: &str, faithful: bool, symint: bool, method: bool) -> Vec<Binding> {
    let form = Form { faithful, symint, method };
    cpp::arguments(&schema(text).arguments, form, &[], STYLE).expect("arguments")
}

fn functions(ops: &[&str]) -> Vec<Rc<NativeFunction>> {
    parse(&crate::common::native(ops), names::TAGS, Dialect::Cpp).expect("declarations")
}

#[test]
fn argument_lists() {
    let dispatcher = |text| dispatcher::arguments(&schema(text), STYLE).expect("arguments");
    let native = |text| native::arguments(&schema(text), false, STYLE).expect("arguments");
    #[rustfmt::skip]
    let table = [
        ("T-224", in_cpp(Q, false, false, false), "const at::Tensor & self, at::IntArrayRef shape, const at::Scalar & k=2, at::TensorOptions options={}, ::std::optional<at::MemoryFormat> memory_format=::std::nullopt"),
        ("T-225", in_cpp(Q, false, true, false), "const at::Tensor & self, c10::SymIntArrayRef shape, const at::Scalar & k=2, at::TensorOptions options={}, ::std::optional<at::MemoryFormat> memory_format=::std::nullopt"),
        ("T-226", in_cpp(Q, true, false, false), "const at::Tensor & self, at::IntArrayRef shape, const at::Scalar & k, ::std::optional<at::ScalarType> dtype, ::std::optional<at::Layout> layout, ::std::optional<at::Device> device, ::std::optional<bool> pin_memory, ::std::optional<at::MemoryFormat> memory_format"),
        ("T-227", dispatcher(Q), "const at::Tensor & self, c10::SymIntArrayRef shape, const at::Scalar & k, ::std::optional<at::ScalarType> dtype, ::std::optional<at::Layout> layout, ::std::optional<at::Device> device, ::std::optional<bool> pin_memory, ::std::optional<at::MemoryFormat> memory_format"),
        ("T-228", native(Q), "const at::Tensor & self, at::IntArrayRef shape, const at::Scalar & k=2, ::std::optional<at::ScalarType> dtype={}, ::std::optional<at::Layout> layout={}, ::std::optional<at::Device> device={}, ::std::optional<bool> pin_memory={}, ::std::optional<at::MemoryFormat> memory_format=::std::nullopt"),
        ("T-231", in_cpp(O, false, false, false), "at::Tensor & out, const at::Tensor & self, const ::std::optional<at::Tensor> & fuel={}, at::IntArrayRef pad=1"),
        ("T-232", native(O), "const at::Tensor & self, const ::std::optional<at::Tensor> & fuel, at::IntArrayRef pad, at::Tensor & out"),
        ("T-234", in_cpp(I, false, false, true), "const ::std::optional<at::Tensor> & fuel={}"),
    ];
    for (id, bindings, expected) in table {
        assert_eq!(declaration(&bindings), expected, "{id}");
    }
}

#[test]
fn operator_and_return_names() {
    let q = schema(Q);
    let found = [native::name(&q), dispatcher::name(&q), unboxing::name(&q)];
    assert_eq!(found, ["quench_deep", "quench", "quench_deep"], "T-229");
    let o = schema(O);
    let found = [cpp::name(&o), cpp::faithful_name(&o), native::name(&o)];
    assert_eq!(found, ["kindle_out", "kindle_outf", "kindle_out_out"], "T-230");
    let both = functions(&[O, "kindle(Tensor self, Tensor? fuel=None, int[2] pad=1) -> Tensor", I]);
    assert_eq!(cpp::return_names(&both[0]), ["out"], "T-233");
    assert_eq!(cpp::return_names(&both[2]), ["self"], "T-235");
    let found = cpp::returns_type(&both[2].func.returns, STYLE).expect("a type");
    assert_eq!(found.cpp_type(), "at::Tensor &", "T-235");
    let several = schema("b(Tensor self) -> (Tensor, Tensor[], Scalar, SymInt, Tensor?)");
    assert_eq!(
        cpp::returns_type(&several.returns, STYLE).expect("a type").cpp_type(),
        "::std::tuple<at::Tensor,::std::vector<at::Tensor>,at::Scalar,c10::SymInt,::std::optional<at::Tensor>>",
        "T-236"
    );
    let u = schema("quench(Tensor self, int[] shape, int? k=None) -> Tensor");
    assert_eq!(unboxing::unboxed_names(&u), ["self_base", "shape_list_out", "k_opt_out"], "T-260");
}

#[test]
fn defaults() {
    let table = [
        ("T-237", "None", "Tensor?", Ok("{}")),
        ("T-238", "None", "int?", Ok("::std::nullopt")),
        ("T-239", "True", "bool", Ok("true")),
        ("T-240", "[]", "int[]", Ok("{}")),
        ("T-241", "[1,2]", "int[2]", Ok("{1,2}")),
        ("T-242", "1", "int[2]", Ok("1")),
        ("T-243", "Mean", "int", Ok("at::Reduction::Mean")),
        ("T-244", "contiguous_format", "MemoryFormat", Ok("c10::MemoryFormat::Contiguous")),
        ("T-245", "'a\"b'", "str", Ok(r#""a\"b""#)),
        ("T-246", "0", "SymInt[1]", Ok("c10::SymInt(0)")),
        ("T-247", "3", "int[]", Err(Kind::DefaultUnsupported)),
    ];
    for (id, default, ty, expected) in table {
        let ty: Type = ty.parse().expect(id);
        let found = cpp::default_expr(default, &ty, true).map_err(|e| e.kind);
        assert_eq!(found.as_deref(), expected.as_ref().map(|s| &**s), "{id}");
    }
}

#[test]
fn structured_groups_and_ufuncs() {
    let functional = "kindle.Tensor(Tensor self, Tensor fuel, Scalar rate) -> Tensor";
    let out = "kindle.out(Tensor self, Tensor fuel, Scalar rate, *, Tensor(a!) out) -> Tensor(a!)";
    let group = functions(&[
        &format!("!{functional} | structured_delegate: kindle.out"),
        &format!("!{out} | structured: True | ufunc_inner_loop: 'kindle (Float)'"),
    ]);
    let (functional, out) = (&group[0].func, &group[1]);
    assert_eq!(meta::name(functional), "kindle_Tensor", "T-248");
    let kernels: Vec<_> = out.dispatch.iter().map(|(_, kernel)| kernel.as_str()).collect();
    assert_eq!(kernels, ["ufunc_kindle_CPU", "ufunc_kindle_CUDA"], "T-249");
    let show = |bindings: Result<Vec<Binding>, _>| declaration(&bindings.expect("arguments"));
    assert_eq!(show(ufunc::stub_arguments(&out.func)), "const at::Scalar & rate", "T-250");
    let inner = ufunc::ufunc_arguments(functional, &CBase::ScalarT.into());
    assert_eq!(show(inner), "scalar_t self, scalar_t fuel, scalar_t rate", "T-250");
    let functor = ufunc::ufunctor_arguments(functional, Some(1)).expect("T-251");
    let found = (declaration(&functor.ctor), declaration(&functor.apply));
    assert_eq!(found, ("opmath_t fuel, opmath_t rate".to_owned(), "scalar_t self".to_owned()), "T-251");
    let inputs = "const at::Tensor & self, const at::Tensor & fuel, const at::Scalar & rate";
    assert_eq!(show(structured::impl_arguments(out)), format!("{inputs}, const at::Tensor & out"), "T-252");
    assert_eq!(show(structured::meta_arguments(functional)), inputs, "T-252");
}

#[test]
fn views_as_data() {
    let view = "warp.dim(Tensor(a -> *) self, SymInt[] n) -> Tensor(a)[]";
    let copy = "warp_copy.dim(Tensor self, SymInt[] n) -> Tensor[] | tags: view_copy";
    let (_, groups) = group_views(&functions(&[view, copy])).expect("a view group");
    let group = &groups[0];
    let func = &group.view.func;
    let found = [
        functionalization::view_meta_class(func),
        functionalization::forward_call(group, true).expect("T-253"),
        functionalization::forward_call(group, false).expect("T-253"),
        functionalization::reverse_name(func),
    ];
    let expected =
        ["warp_dim_ViewMeta", "at::_ops::warp_dim::call", "at::_ops::warp_copy_dim::call", "warp_dim_inverse"];
    assert_eq!(found, expected, "T-253");
    let arguments = |reverse| declaration(&functionalization::op_arguments(func, reverse, STYLE).expect("arguments"));
    assert_eq!(arguments(false), "const at::Tensor & base, c10::SymIntArrayRef n", "T-254");
    assert_eq!(
        arguments(true),
        "const at::Tensor & base, const at::Tensor & mutated_view, at::functionalization::InverseReturnMode inverse_return_mode, int64_t out_index, c10::SymIntArrayRef n",
        "T-254"
    );
    assert_eq!(
        declaration(&functionalization::attributes(func, STYLE).expect("attributes")),
        "bool reapply_views, at::functionalization::InverseReturnMode inverse_return_mode, ::std::vector<c10::SymInt> n",
        "T-255"
    );
}

#[test]
fn translation() {
    let plain = in_cpp(Q, false, false, false);
    let symbolic = in_cpp(Q, false, true, false);
    let dispatcher = dispatcher::arguments(&schema(Q), STYLE).expect("arguments");
    let native = native::arguments(&schema(Q), false, STYLE).expect("arguments");
    #[rustfmt::skip]
    let table = [
        ("T-256", &plain, &dispatcher[..], "self; c10::fromIntArrayRefSlow(shape); k; c10::optTypeMetaToScalarType(options.dtype_opt()); options.layout_opt(); options.device_opt(); options.pinned_memory_opt(); c10::impl::check_tensor_options_and_extract_memory_format(options, memory_format)"),
        ("T-257", &dispatcher, &native[..], "self; C10_AS_INTARRAYREF_SLOW(shape); k; dtype; layout; device; pin_memory; memory_format"),
        ("T-258", &dispatcher, &symbolic[..4], "self; shape; k; TensorOptions().dtype(dtype).layout(layout).device(device).pinned_memory(pin_memory)"),
    ];
    for (id, scope, goals, expected) in table {
        let found = translate(scope, goals, Allow::default()).map_err(|e| e.message);
        assert_eq!(found.map(|list| list.join("; ")).as_deref(), Ok(expected), "{id}");
    }
    let error = translate(&[], &dispatcher, Allow::default()).expect_err("T-259");
    assert_eq!(error.kind, Kind::TranslateUnsatisfied, "T-259");
}
