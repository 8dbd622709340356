//! The YAML reader: resolution of plain scalars, folding, repeated keys, lines, bounds.

use firebrand_codegen::Stage;
use firebrand_codegen::yaml::{Node, Value, parse};

fn read(text: &str) -> Result<Node, (&'static str, Option<usize>)> {
    parse(text, Stage::Native).map_err(|e| (e.kind.as_str(), e.line))
}

#[test]
fn plain_scalars_follow_yaml_1_1() {
    let other = |t: &str| Value::Other(t.to_owned());
    let text = |t: &str| Value::Str(t.to_owned());
    let table = [
        ("yes", Value::Bool(true)),
        ("On", Value::Bool(true)),
        ("FALSE", Value::Bool(false)),
        ("y", text("y")),
        ("~", Value::Null),
        ("0", Value::Int(0)),
        ("-12", Value::Int(-12)),
        ("1_000", Value::Int(1000)),
        ("0x1F", Value::Int(31)),
        ("017", Value::Int(15)),
        ("08", text("08")),
        ("1:30", other("1:30")),
        ("1.5", other("1.5")),
        ("1e5", text("1e5")),
        ("1.0e+5", other("1.0e+5")),
        ("2024-01-31", other("2024-01-31")),
        ("- x", Value::List(vec![Node { line: 1, value: text("x") }])),
        ("-x", text("-x")),
        ("'yes'", text("yes")),
        ("!!str 0", text("0")),
        ("grad * self", text("grad * self")),
    ];
    for (input, expected) in table {
        assert_eq!(read(input).map(|n| n.value), Ok(expected), "{input}");
    }
}

#[test]
fn plain_scalars_fold_and_keep_inner_spaces() {
    let node = read("- k: grad *\n    two   *\n    three\n").expect("valid");
    let item = &node.as_list().expect("list")[0];
    assert_eq!(item.get("k").and_then(Node::as_str), Some("grad * two   * three"));
}

#[test]
fn repeated_keys_are_errors_with_their_line() {
    assert_eq!(read("a: 1\nb: 2\na: 3\n"), Err(("yaml_duplicate_key", Some(3))));
    assert_eq!(read("- {a: 1, a: 1}"), Err(("yaml_duplicate_key", Some(1))));
}

#[test]
fn repeated_keys_are_found_in_large_mappings_too() {
    let large: String = (0..100).map(|i| format!("k{i}: {i}\n")).collect();
    assert!(read(&large).is_ok());
    for repeated in ["k0", "k31", "k32", "k99"] {
        assert_eq!(read(&format!("{large}{repeated}: x\n")), Err(("yaml_duplicate_key", Some(101))), "{repeated}");
    }
}

#[test]
fn lines_are_kept() {
    let node = read("# head\n- func: f\n  tags: [a,\n    b]\n- func: g\n").expect("valid");
    let items = node.as_list().expect("list");
    assert_eq!([items[0].line, items[1].line], [2, 5]);
    let tags = items[0].get("tags").and_then(Node::as_list).expect("list");
    assert_eq!([tags[0].line, tags[1].line], [3, 4]);
}

#[test]
fn aliases_are_expanded_within_bounds() {
    let node = read("- &x {a: 1}\n- *x\n").expect("valid");
    let items = node.as_list().expect("list");
    assert_eq!(items[0], items[1]);
    let mut bomb = String::from("- &a0 [x, x, x, x, x, x, x, x, x, x]\n");
    for i in 1..9 {
        bomb += &format!("- &a{i} [{}]\n", vec![format!("*a{}", i - 1); 10].join(", "));
    }
    assert_eq!(read(&bomb).map(|_| ()).map_err(|e| e.0), Err("yaml_syntax"));
    assert_eq!(read(&"[".repeat(500)).map(|_| ()).map_err(|e| e.0), Err("yaml_syntax"));
    assert_eq!(read("a\n---\nb\n").map(|_| ()).map_err(|e| e.0), Err("yaml_syntax"));
    assert_eq!(read("").map(|n| n.value), Ok(Value::Null));
}
