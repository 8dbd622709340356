//! The table of rules and the records of ops say the same.

use super::*;
use firebrand_core::dispatch::Decomposition;

/// Without arguments a rule fails to read one, or gives something; what is not a rule gives nothing. So this finds every
/// op with a rule without running one.
#[test]
fn exactly_the_ops_that_say_so_have_one_rule() {
    let nowhere = |op: Op, _: &[Value]| Err(Error::argument("test", format!("{op:?} is not run")));
    let e = Emit::new(&nowhere);
    let mut wrong = Vec::new();
    for op in Op::all() {
        let a = Args::new(op.name(), &[]);
        let one = FAMILIES.iter().filter(|f| !matches!(f(&e, op, &a), Ok(None))).count();
        let several = OF_SEVERAL.iter().filter(|f| !matches!(f(&e, op, &a), Ok(None))).count();
        let due = usize::from(op.info().decomposition == Decomposition::Rule);
        if one + several != due {
            wrong.push(format!(
                "{op:?}: {} rules, {due} expected; see `decomposition` in schema/README.md",
                one + several
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
