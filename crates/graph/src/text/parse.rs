//! Reading the short and the long form. Errors name the line and, inside a statement, the node.
//!
//! Input of any kind gives a program or an error: nothing panics, nothing recurses deeper than a fixed limit, and what
//! is allocated is in proportion to the text.

use super::scan::Scanner;
use super::signature::{read_input, read_output};
use super::values::{read_argument, read_tensor_meta, read_val};
use crate::error::{Error, Result};
use crate::ir::*;
use crate::program::{Dialect, ExportedProgram, ValueRange};
use crate::signature::GraphSignature;
use indexmap::IndexMap;
use std::collections::HashMap;
use std::sync::Arc;

/// How deep sub-graphs may nest.
const MAX_DEPTH: usize = 64;

/// Reads a module; a signature block behind it is refused.
pub fn parse_module(text: &str) -> Result<GraphModule> {
    let program = parse(text)?;
    Ok(Arc::unwrap_or_clone(program.module))
}

/// Reads a program: a graph, its sub-graphs and, if given, its signature.
pub fn parse(text: &str) -> Result<ExportedProgram> {
    let mut lines = Lines { lines: text.lines().enumerate(), peeked: None };
    let module = read_blocks(&mut lines)?;
    let mut program = ExportedProgram::new(module, None);
    let mut signature: Option<GraphSignature> = None;
    let mut section = "";
    while let Some((number, line)) = lines.next() {
        if let Some(heading) = line.strip_prefix("# ") {
            section = heading.trim();
            if section == "inputs" || section == "outputs" {
                signature.get_or_insert_default();
            }
            continue;
        }
        let s = &mut Scanner::new(line, number);
        match (section, &mut signature) {
            ("inputs", Some(signature)) => signature.inputs.push(read_input(s)?),
            ("outputs", Some(signature)) => {
                let returned = program.module.graph.result().and_then(Argument::items);
                let value = returned.and_then(|items| items.get(signature.outputs.len()));
                signature.outputs.push(read_output(s, value)?);
            }
            ("ranges", _) => {
                let (symbol, range) = read_range(s)?;
                program.range_constraints.insert(symbol, range);
            }
            ("dialect", _) if line.trim() == "ATEN" => program.dialect = Dialect::Aten,
            ("dialect", _) if line.trim() == "TRAINING" => program.dialect = Dialect::Training,
            _ => return Err(s.expected("a section such as '# inputs' or '# outputs'")),
        }
    }
    program.signature = signature.map(Arc::new);
    Ok(program)
}

fn read_range(s: &mut Scanner<'_>) -> Result<(String, ValueRange)> {
    let symbol = s.name()?.to_string();
    s.expect(":")?;
    let end = |s: &mut Scanner<'_>| -> Result<Option<i64>> {
        let digits = s.take(|c| c.is_ascii_digit() || c == '-');
        if digits.is_empty() {
            return Ok(None);
        }
        digits.parse().map(Some).map_err(|_| s.expected("an integer before this"))
    };
    let min = end(s)?;
    s.expect("..")?;
    let max = end(s)?;
    s.end()?;
    Ok((symbol, ValueRange { min, max }))
}

/// Lines that say something, with their numbers.
struct Lines<'a> {
    lines: std::iter::Enumerate<std::str::Lines<'a>>,
    peeked: Option<(usize, &'a str)>,
}

impl<'a> Lines<'a> {
    fn next(&mut self) -> Option<(usize, &'a str)> {
        let comment = |line: &str| {
            let line = line.trim_start();
            let known = ["# inputs", "# outputs", "# ranges", "# dialect"];
            line.starts_with('#') && !known.contains(&line.trim_end())
        };
        self.peeked.take().or_else(|| {
            let mut lines = self.lines.by_ref().map(|(i, line)| (i + 1, line.trim_end()));
            lines.find(|(_, line)| !line.is_empty() && !comment(line))
        })
    }

    fn peek(&mut self) -> Option<(usize, &'a str)> {
        self.peeked = self.next();
        self.peeked
    }
}

fn indent_of(line: &str) -> usize {
    line.len() - line.trim_start_matches(' ').len()
}

/// Reads a block and the blocks that hang below it, which are indented two spaces more for each level.
fn read_blocks(lines: &mut Lines<'_>) -> Result<GraphModule> {
    let Some((number, line)) = lines.next() else {
        return Err(Error::Text { line: 1, message: "expected 'graph {', found nothing".to_string() });
    };
    if line.trim_start() != "graph {" {
        return Err(Scanner::new(line, number).expected("'graph {'"));
    }
    let base = indent_of(line);
    // The open blocks, outermost first: each is a child of the one before it.
    let mut open: Vec<(String, GraphModule)> = vec![(String::new(), read_body(lines)?)];
    while let Some((number, line)) = lines.peek() {
        let Some(name) = line.trim_start().strip_suffix(" {") else { break };
        let s = Scanner::new(line, number);
        let offset = indent_of(line).checked_sub(base).filter(|o| o % 2 == 0 && *o > 0);
        let depth = offset.map(|o| o / 2).ok_or_else(|| s.expected("two spaces of indentation for each level"))?;
        if depth > open.len() || depth > MAX_DEPTH {
            let most = open.len().min(MAX_DEPTH);
            return Err(s.expected(&format!("a sub-graph at most {most} levels deep")));
        }
        close(&mut open, depth, number)?;
        let well_formed = name.split('.').all(super::atoms::is_word);
        if !well_formed {
            return Err(s.expected("a name and '{'"));
        }
        lines.next();
        open.push((name.to_string(), read_body(lines)?));
    }
    let line = lines.peek().map_or(0, |(n, _)| n);
    close(&mut open, 1, line)?;
    let (_, mut top) = open.pop().expect("the top block stays open");
    bind_missing(&mut top);
    Ok(top)
}

/// Closes blocks until `depth` are open, handing each to its parent.
fn close(open: &mut Vec<(String, GraphModule)>, depth: usize, line: usize) -> Result<()> {
    while open.len() > depth {
        let (name, mut inner) = open.pop().expect("more than one block is open");
        bind_missing(&mut inner);
        let (_, parent) = open.last_mut().expect("the top block stays open");
        let taken = parent.attributes.get(&name).is_some();
        if taken || !parent.attributes.set(&name, Attribute::Graph(Arc::new(inner))) {
            return Err(Error::Text { line, message: format!("the name {name} of a sub-graph is taken") });
        }
    }
    Ok(())
}

/// Paths that the text reads but does not define have a value elsewhere.
fn bind_missing(module: &mut GraphModule) {
    let paths: Vec<Name> = module.graph.nodes().filter_map(|n| module.graph[n].attr_path().cloned()).collect();
    for path in paths {
        if module.attributes.get(&path).is_none() {
            module.attributes.set(&path, Attribute::Unbound(None));
        }
    }
}

fn read_body(lines: &mut Lines<'_>) -> Result<GraphModule> {
    let mut module = GraphModule::default();
    let mut nodes: HashMap<Name, NodeId> = HashMap::new();
    loop {
        let Some((number, line)) = lines.next() else {
            return Err(Error::Text { line: 0, message: "the text ends inside a graph: expected '}'".to_string() });
        };
        let s = &mut Scanner::new(line, number);
        if s.eat("}") {
            s.end()?;
            return Ok(module);
        }
        if s.eat("attr ") {
            read_attribute(s, &mut module)?;
        } else if s.eat("meta ") {
            let key = s.string()?;
            s.expect("=")?;
            let value = s.string()?;
            s.end()?;
            module.meta.insert(key, value);
        } else {
            read_statement(s, &mut module.graph, &mut nodes)?;
        }
    }
}

fn read_attribute(s: &mut Scanner<'_>, module: &mut GraphModule) -> Result<()> {
    let path = s.path().to_string();
    if path.is_empty() || !path.split('.').all(super::atoms::is_word) {
        return Err(s.expected("the path of an attribute"));
    }
    s.expect(":")?;
    let role = s.word();
    let attribute = if role == "object" {
        Attribute::Object { class_fqn: s.string()?.into() }
    } else if matches!(role, "tensor" | "parameter" | "buffer" | "temporary_buffer" | "unbound") {
        // The text names the tensor; its elements are elsewhere.
        let meta = match ScalarType::from_name(s.word()) {
            Some(dtype) => Some(Arc::new(read_tensor_meta(s, dtype)?)),
            None => None,
        };
        Attribute::Unbound(meta)
    } else {
        return Err(s.expected("tensor, parameter, buffer, temporary_buffer, object or unbound before this"));
    };
    s.end()?;
    match module.attributes.set(&path, attribute) {
        true => Ok(()),
        false => Err(s.expected("a path through modules before this")),
    }
}

fn read_statement(s: &mut Scanner<'_>, graph: &mut Graph, nodes: &mut HashMap<Name, NodeId>) -> Result<()> {
    let lookup = |name: &str| nodes.get(name).copied();
    if s.eat("return ") {
        let value = read_argument(s, &lookup, 0)?;
        let meta = read_meta(s)?;
        s.end()?;
        let output = graph.output(value);
        *graph.meta_mut(output) = meta;
        return Ok(());
    }
    s.expect("%")?;
    let name: Name = s.name()?.into();
    let inside = |e: Error| match e {
        Error::Text { line, message } => Error::Text { line, message: format!("node %{name}: {message}") },
        e => e,
    };
    let (kind, args, kwargs) = read_call(s, &name, &lookup).map_err(inside)?;
    let meta = read_meta(s).map_err(inside)?;
    s.end().map_err(inside)?;
    let Some(id) = graph.create_named(kind, args, kwargs, &name) else {
        let message = format!("node %{name}: two nodes have this name");
        return Err(Error::Text { line: s.line, message });
    };
    *graph.meta_mut(id) = meta;
    nodes.insert(name, id);
    Ok(())
}

type Call = (Kind, Vec<Argument>, Vec<(Name, Argument)>);

fn read_call(s: &mut Scanner<'_>, name: &Name, lookup: &dyn Fn(&str) -> Option<NodeId>) -> Result<Call> {
    s.expect("=")?;
    let begin = {
        s.blank();
        s.at
    };
    let word = s.path();
    let kind = match word {
        "placeholder" => {
            let target = s.take(|c| c.is_ascii_alphanumeric() || c == '_' || c == '*' || c == '.');
            let kind = Kind::Placeholder(if target.is_empty() { name.clone() } else { target.into() });
            if s.peek() != Some('(') {
                return Ok((kind, Vec::new(), Vec::new()));
            }
            kind
        }
        "get_attr" => {
            let path = s.path();
            if path.is_empty() || !path.split('.').all(super::atoms::is_word) {
                return Err(s.expected("the path of an attribute"));
            }
            return Ok((Kind::GetAttr(path.into()), Vec::new(), Vec::new()));
        }
        "call_method" => Kind::CallMethod(s.name()?.into()),
        "call_module" => Kind::CallModule(s.path().into()),
        _ => Kind::CallFunction(Target::parse(word).ok_or_else(|| {
            s.at = begin;
            s.expected("placeholder, get_attr, or a target such as aten.add.Tensor")
        })?),
    };
    s.expect("(")?;
    let (mut args, mut kwargs): (Vec<Argument>, Vec<(Name, Argument)>) = (Vec::new(), Vec::new());
    while !s.eat(")") {
        if !args.is_empty() || !kwargs.is_empty() {
            s.expect(",")?;
        }
        let begin = s.at;
        let key = s.word();
        if !key.is_empty() && s.eat("=") {
            if kwargs.iter().any(|(k, _)| &**k == key) {
                return Err(s.expected(&format!("'{key}' only once")));
            }
            kwargs.push((key.into(), read_argument(s, lookup, 0)?));
        } else if kwargs.is_empty() {
            s.at = begin;
            args.push(read_argument(s, lookup, 0)?);
        } else {
            return Err(s.expected("name=value: positional arguments come first"));
        }
    }
    if matches!(kind, Kind::Placeholder(_)) && (args.len() != 1 || !kwargs.is_empty()) {
        return Err(s.expected("one default value before this"));
    }
    Ok((kind, args, kwargs))
}

fn read_strings(s: &mut Scanner<'_>) -> Result<Vec<String>> {
    s.expect("[")?;
    let mut strings = Vec::new();
    while !s.eat("]") {
        if !strings.is_empty() {
            s.expect(",")?;
        }
        strings.push(s.string()?);
    }
    Ok(strings)
}

fn read_meta(s: &mut Scanner<'_>) -> Result<Meta> {
    let mut meta = Meta::default();
    if s.eat(":") {
        meta.val = Some(read_val(s, 0)?);
    }
    let mut other: IndexMap<String, String> = IndexMap::new();
    while s.eat("@") {
        let (quoted, key) = if s.peek() == Some('"') { (true, s.string()?) } else { (false, s.name()?.to_string()) };
        s.expect("=")?;
        match key.as_str() {
            "nn_module_stack" if !quoted => {
                let parts = read_strings(s)?;
                let (entries, rest) = parts.as_chunks::<3>();
                if !rest.is_empty() {
                    return Err(s.expected("key, path and class for each module before this"));
                }
                let entries = entries.iter().map(|[k, p, c]| (k.clone(), (p.clone(), c.clone())));
                meta.nn_module_stack = Some(Arc::new(entries.collect()));
            }
            "torch_fn" if !quoted => {
                let [name, qualified] =
                    <[String; 2]>::try_from(read_strings(s)?).map_err(|_| s.expected("two strings before this"))?;
                meta.torch_fn = Some(Arc::new((name, qualified)));
            }
            "stack_trace" if !quoted => meta.stack_trace = Some(s.string()?.into()),
            _ => {
                let value = s.string()?;
                other.insert(key, value);
            }
        }
    }
    if !other.is_empty() {
        meta.other = Some(Arc::new(other));
    }
    Ok(meta)
}
