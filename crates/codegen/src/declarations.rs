//! Declarations as JSON: how each one was understood, before anything is known of derivatives.
//!
//! For tools that read PyTorch's declaration files and want their parts: arguments, types, alias annotations, kernels, generated
//! variants. Like the dump it decides nothing; keys are sorted.

use crate::json::{Json, Object};
use crate::native::NativeFunction;
use crate::schema::{Annotation, Type};
use std::rc::Rc;

/// Prints declared and generated operators, in this order.
pub(crate) fn print(functions: &[Rc<NativeFunction>]) -> String {
    Json::document(|o| {
        o.key("format").int(1);
        o.key("functions").list(functions, |json, f| json.object(|o| function(o, f)));
    })
}

fn function(o: &mut Object<'_>, f: &NativeFunction) {
    let positional = f.func.arguments.flat_positional().count();
    o.key("arguments").list(f.func.arguments.flat_all().enumerate(), |json, (k, a)| {
        json.object(|o| {
            annotation(o, a.annotation.as_ref());
            o.opt_str("default", a.default.as_deref());
            o.bool("keyword_only", k >= positional);
            o.str("name", &a.name);
            ty(o, &a.ty);
        });
    });
    let mut kernels = f.dispatch.clone();
    kernels.sort();
    o.key("dispatch").object(|o| kernels.iter().for_each(|(key, kernel)| o.str(key, kernel)));
    o.bool("generated", f.is_generated());
    o.str("kind", f.kind().as_str());
    o.str("name", &f.func.name.to_string());
    o.str("namespace", &f.namespace);
    o.key("returns").list(&f.func.returns, |json, r| {
        json.object(|o| {
            annotation(o, r.annotation.as_ref());
            o.opt_str("name", r.name.as_deref());
            ty(o, &r.ty);
        });
    });
    o.str("schema", &f.text);
    o.strs("tags", &f.tags);
}

fn annotation(o: &mut Object<'_>, annotation: Option<&Annotation>) {
    let Some(annotation) = annotation else { return o.key("annotation").null() };
    let letters = |set: &[char]| set.iter().map(char::to_string).collect::<Vec<_>>();
    o.key("annotation").object(|o| {
        o.strs("alias_set", letters(&annotation.alias_set));
        o.strs("alias_set_after", letters(&annotation.alias_set_after));
        o.bool("is_write", annotation.is_write);
    });
}

/// The type as it prints; of a custom class, its name too.
fn ty(o: &mut Object<'_>, ty: &Type) {
    o.key("type").object(|o| {
        o.opt_str("custom_class", if let Type::Custom(name) = ty { Some(name) } else { None });
        o.str("text", &ty.to_string());
    });
}

#[cfg(test)]
mod tests {
    use crate::{Dialect, Sources};

    fn declared(native: &str) -> String {
        Sources { native, derivatives: "", tags: None, dialect: Dialect::Cpp }.declarations().expect("declarations")
    }

    #[test]
    fn says_what_was_read_and_what_was_generated() {
        let text = declared(
            "- func: op(Tensor self, int[2]? size=None) -> Tensor\n  dispatch: {CPU: op_cpu}\n  autogen: op.out\n",
        );
        for part in [
            "\"schema\": \"op.out(Tensor self, int[2]? size=None, *, Tensor(a!) out) -> Tensor(a!)\"",
            "\"CompositeExplicitAutograd\": \"op_out\"",
            "\"CPU\": \"op_cpu\"",
            "\"text\": \"int[2]?\"",
            "\"generated\": true",
            "\"is_write\": true",
        ] {
            assert!(text.contains(part), "{part} in {text}");
        }
        assert!(declared("- func: f(__torch__.torch.classes.a.B x) -> ()\n").contains("\"custom_class\": \"a.B\""));
    }
}
