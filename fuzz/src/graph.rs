//! The text form of programs: nothing panics, what is read prints back, and passes take or refuse it.

use crate::counting::measured;
use firebrand_graph::passes::{self, Context, PASSES};
use firebrand_graph::text::{Form, parse, print};
use firebrand_graph::verify::verify_module;

/// A text that parses prints, in both forms, to a text that says the same.
pub(crate) fn fuzz_text(data: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(data) else { return false };
    let Ok(program) = measured(data.len(), || parse(text)) else { return false };
    for form in [Form::Short, Form::Long] {
        let printed = print(&program, form);
        let again = parse(&printed).unwrap_or_else(|e| panic!("{e}:\n{printed}"));
        assert_eq!(print(&again, form), printed);
    }
    true
}

/// A well-formed graph stays so in every pass.
pub(crate) fn fuzz_passes(data: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(data) else { return false };
    let Ok(program) = parse(text) else { return false };
    if verify_module(&program.module).is_ok() {
        // Passes that run ops are left out: random sizes are not for small machines.
        let cheap = PASSES.iter().filter(|p| !matches!(p.name, "constant_fold" | "run_decompositions"));
        for pass in cheap {
            for compat in [false, true] {
                if let Ok((after, _)) = passes::run(&program, &[pass], &Context { ambient_grad: true, compat }) {
                    assert!(verify_module(&after.module).is_ok(), "{}", pass.name);
                }
            }
        }
    }
    true
}
