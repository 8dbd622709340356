//! Reads `derivatives.yaml` and gives every op its derivative: what a node keeps, computes and is called.
//!
//! Guarantees: every tensor argument of an op that could carry a gradient has a formula or is declared
//! non-differentiable, or the op is built of ops for which that holds; so no gradient is lost silently. Formulas are
//! already rewritten to Rust; this file makes no text of its own.

use super::declare::{Arg, Form, Implementation, Op, Returns, ident};
use super::formula::{self, Attribute, Formula};
use super::rewrite::{OpIndex, rewrite};
use super::types::Ty;
use crate::error::{CodegenError, Kind, Result, Stage};
use crate::schema::SchemaKind;
use crate::yaml::{self, Node};
use std::collections::{BTreeSet, HashMap};
use std::rc::Rc;
use syn::Expr;

/// A value that a node keeps.
#[derive(Clone, Debug)]
pub(super) struct Saved {
    /// As users ask for it: `self`, `self_sym_sizes`.
    pub(super) name: String,
    pub(super) ty: Ty,
    /// The argument or result it is, or is read from.
    pub(super) of: String,
    /// Text that reads an attribute; `$` stands for the tensor. None for the whole value.
    pub(super) read: Option<String>,
    /// Kept only if the input at this position needs a gradient.
    pub(super) guard: Option<usize>,
    /// It is, or is read from, the result at this position.
    pub(super) output: Option<usize>,
}

impl Saved {
    /// The field of the node.
    pub(super) fn field(&self) -> String {
        ident(&self.name)
    }
}

/// One backward formula.
#[derive(Clone, Debug)]
pub(super) struct Step {
    /// Positions among the inputs of the derivative.
    pub(super) inputs: Vec<usize>,
    pub(super) expr: Expr,
    pub(super) uses_mask: bool,
}

/// One forward formula.
#[derive(Clone, Debug)]
pub(super) struct Forward {
    /// Which result.
    pub(super) output: usize,
    pub(super) expr: Expr,
    /// Names of arguments whose tangent it uses.
    pub(super) tangents: BTreeSet<String>,
    /// Names of arguments whose value it uses under the name `x_p`.
    pub(super) primals: BTreeSet<String>,
}

/// The derivative of an op.
#[derive(Clone, Debug)]
pub(super) struct Derivative {
    /// The Rust name of the op whose entry it is; an in-place form shares that of its functional form.
    pub(super) owner: String,
    /// `MulBackward0`.
    pub(super) node: String,
    /// Arguments with a formula, in argument order: one edge each (a list has one per tensor).
    pub(super) inputs: Vec<Arg>,
    pub(super) steps: Vec<Step>,
    pub(super) saved: Vec<Saved>,
    pub(super) uses_grad: bool,
    /// Name and position among differentiable results.
    pub(super) named_gradients: Vec<(String, usize)>,
    /// Positions of results that have history.
    pub(super) outputs: Vec<usize>,
    pub(super) forward: Vec<Forward>,
}

impl Derivative {
    /// Position of the input that is a list of tensors; there is at most one.
    pub(super) fn list_input(&self) -> Option<usize> {
        self.inputs.iter().position(|a| a.ty.is_tensor_list())
    }

    /// Position of a result among those with history.
    pub(super) fn slot(&self, output: usize) -> Option<usize> {
        self.outputs.iter().position(|&o| o == output)
    }
}

/// How gradients of an op come about.
#[derive(Clone, Debug)]
pub(super) enum Differentiation {
    Formula(Rc<Derivative>),
    /// The op's own business; the name of its node.
    Manual(String),
    Composite,
    None,
}

/// Reads the file and matches it with the ops: one answer per op, in the order of `ops`.
pub(super) fn read(text: &str, ops: &[Op]) -> Result<Vec<Differentiation>> {
    let document = yaml::parse(text, Stage::Derivatives)?;
    let entries = match &document.value {
        yaml::Value::Null => &[],
        _ => document.as_list().ok_or_else(|| at(document.line, Kind::YamlShape, "the file is a list of entries"))?,
    };
    let by_schema: HashMap<String, usize> = ops.iter().enumerate().map(|(k, op)| (op.schema.to_string(), k)).collect();
    let by_name: HashMap<String, &Op> = ops.iter().map(|op| (op.name(), op)).collect();
    let index = OpIndex::new(ops);
    let mut found: HashMap<usize, Option<Rc<Derivative>>> = HashMap::new();
    let mut counters: HashMap<String, usize> = HashMap::new();
    let mut nodes: HashMap<String, String> = HashMap::new();
    for entry in entries {
        let Some(name) = entry.get("name").and_then(Node::as_str) else {
            return Err(at(
                entry.line,
                Kind::EntryNoName,
                "an entry is a mapping with the key `name`: the op's schema",
            ));
        };
        let located = |e: CodegenError| e.at(entry.line, name);
        let Some(&k) = by_schema.get(name) else {
            let base = name.split('(').next().unwrap_or(name);
            let hint = match by_name.get(base) {
                Some(op) => format!("it is declared as\n    {}", op.schema),
                None => "declare it in ops.yaml first".to_owned(),
            };
            return Err(located(at(entry.line, Kind::EntrySchemaUnknown, format!("no op has this schema; {hint}"))));
        };
        if found.contains_key(&k) {
            return Err(located(at(entry.line, Kind::DuplicateSchema, "this op has an entry already")));
        }
        let reader = Reader { op: &ops[k], entry, index: &index };
        let derivative = reader.read(&mut counters).map_err(located)?;
        if let Some(d) = &derivative
            && let Some(other) = nodes.insert(d.node.clone(), name.to_owned())
        {
            let message = format!("the node `{}` belongs to `{other}` already; choose another with `node:`", d.node);
            return Err(located(at(entry.line, Kind::DuplicateNode, message)));
        }
        found.insert(k, derivative.map(Rc::new));
    }
    ops.iter().enumerate().map(|(k, op)| differentiation(k, op, &found)).collect()
}

fn at(line: usize, kind: Kind, message: impl Into<String>) -> CodegenError {
    let mut e = CodegenError::new(Stage::Derivatives, kind, message);
    e.line = Some(line);
    e
}

fn differentiation(k: usize, op: &Op, found: &HashMap<usize, Option<Rc<Derivative>>>) -> Result<Differentiation> {
    match &op.implementation {
        Implementation::Composite(_) | Implementation::Foreach { .. } => return Ok(Differentiation::Composite),
        Implementation::Manual(_, Some(node)) => return Ok(Differentiation::Manual(node.clone())),
        Implementation::Manual(_, None) => return Ok(Differentiation::None),
        _ => {}
    }
    let own = found.get(&k);
    let entry = match op.form {
        Form::Functional => own,
        Form::Inplace(base) | Form::Out(base) => own.or_else(|| found.get(&base)),
    };
    if let Some(Some(derivative)) = entry {
        // An in-place form has a derivative even so: what it overwrites had one.
        if op.non_differentiable && own.is_some() && op.form == Form::Functional {
            return Err(op.error(Kind::NondiffOverlap, "`non_differentiable: true`, yet derivatives.yaml has formulas"));
        }
        if matches!(op.form, Form::Inplace(_)) && derivative.inputs.first().is_none_or(|a| a.name != "self") {
            let message =
                "the in-place form needs a formula for `self`, and `self` must be the first argument that has one";
            return Err(op.error(Kind::LostGradient, message));
        }
        return Ok(Differentiation::Formula(derivative.clone()));
    }
    let tensors_in = op.args().any(|a| a.ty.is_tensor());
    let tensors_out = !matches!(op.returns, Returns::Nothing | Returns::Value(_));
    if matches!(op.form, Form::Inplace(_)) {
        let entry = op.schema.to_string();
        let message = format!(
            "writing into a tensor that has history would lose a gradient silently: give the in-place form an entry of \
             its own in derivatives.yaml\n    - name: {entry}\n      self: zeros_like(grad)"
        );
        return Err(op.error(Kind::LostGradient, message));
    }
    if tensors_in && tensors_out && !op.non_differentiable && entry.is_none() {
        let message = "could lose a gradient silently: add an entry to derivatives.yaml, build it of other ops with \
                       `composite`, or say `non_differentiable: true`";
        return Err(op.error(Kind::LostGradient, message));
    }
    Ok(Differentiation::None)
}

struct Reader<'a> {
    op: &'a Op,
    entry: &'a Node,
    index: &'a OpIndex<'a>,
}

impl Reader<'_> {
    fn read(&self, counters: &mut HashMap<String, usize>) -> Result<Option<Derivative>> {
        let op = self.op;
        if !op.implementation.has_below() {
            let message =
                "a composite, foreach or manual op is differentiated by what it is made of; remove this entry";
            return Err(at(self.entry.line, Kind::CompositeDerivative, message));
        }
        let outputs = self.differentiable_outputs()?;
        let results = op.result_names();
        let (mut backward, mut forward, mut excluded) = (Vec::new(), Vec::new(), BTreeSet::new());
        for (key, value) in self.entry.as_map().unwrap_or_default() {
            let Some(key_text) = key.as_str() else { return Err(at(key.line, Kind::YamlShape, "a key is a name")) };
            if matches!(key_text, "name" | "node" | "output_differentiability") {
                continue;
            }
            let Some(text) = value.as_str() else {
                let message =
                    format!("the formula of `{key_text}` is text; quote it if YAML reads it as something else");
                return Err(at(value.line, Kind::FormulaNotString, message));
            };
            let names: Vec<String> = key_text.split(',').map(|n| n.trim().to_owned()).collect();
            let is_result = |n: &str| results.iter().any(|r| r == n) || results.iter().any(|r| *r == ident(n));
            let text = text.trim();
            if is_result(&names[0]) {
                forward.push((key_text.to_owned(), text.to_owned(), value.line));
                continue;
            }
            for n in &names {
                match op.args().find(|a| a.name == *n) {
                    Some(a) if a.ty.is_tensor() => {}
                    Some(_) => {
                        let message = format!("`{n}` is no tensor, so it has no derivative");
                        return Err(at(key.line, Kind::EmitUnknownVar, message));
                    }
                    None => {
                        let args: Vec<_> = op.args().filter(|a| a.ty.is_tensor()).map(|a| a.name.as_str()).collect();
                        let message = format!(
                            "`{n}` is neither a tensor argument ({}) nor a result ({})",
                            args.join(", "),
                            results.join(", ")
                        );
                        return Err(at(key.line, Kind::EmitUnknownVar, message));
                    }
                }
            }
            if text == "non_differentiable" {
                excluded.extend(names);
            } else {
                backward.push((names, Formula::parse(text, value.line)?));
            }
        }
        let inputs: Vec<Arg> =
            op.args().filter(|a| backward.iter().any(|(names, _)| names.contains(&a.name))).cloned().collect();
        for n in &excluded {
            if inputs.iter().any(|a| a.name == *n) {
                let message = format!("`{n}` has a formula and is non_differentiable");
                return Err(at(self.entry.line, Kind::NondiffOverlap, message));
            }
        }
        if outputs.is_empty() {
            return match inputs.first() {
                None => Ok(None),
                Some(a) => {
                    let message =
                        format!("the formula of `{}` could never be used: no output is differentiable", a.name);
                    Err(at(self.entry.line, Kind::EmitDerivativeIgnored, message))
                }
            };
        }
        let forgotten = op
            .args()
            .find(|a| a.ty.is_tensor() && !excluded.contains(&a.name) && !inputs.iter().any(|i| i.name == a.name));
        if let Some(a) = forgotten {
            let message = format!(
                "could lose a gradient silently: `{0}` has no formula; add one or say `{0}: non_differentiable`",
                a.name
            );
            return Err(at(self.entry.line, Kind::LostGradient, message));
        }
        if inputs.is_empty() {
            return Ok(None);
        }
        if inputs.iter().filter(|a| a.ty.is_tensor_list()).count() > 1 {
            return Err(at(self.entry.line, Kind::EmitMissingArgs, "two lists of tensors with derivatives in one op"));
        }
        let node = self.node_name(counters)?;
        let mut derivative = Derivative {
            owner: op.rust.clone(),
            node,
            inputs,
            steps: Vec::new(),
            saved: Vec::new(),
            uses_grad: false,
            named_gradients: Vec::new(),
            outputs,
            forward: Vec::new(),
        };
        self.backward(&mut derivative, &backward)?;
        for (key, text, line) in forward {
            let f = self.forward(&derivative, &key, &text, line, &backward)?;
            derivative.forward.push(f);
        }
        derivative.forward.sort_by_key(|f| f.output);
        let missing = derivative.outputs.iter().find(|o| !derivative.forward.iter().any(|f| f.output == **o));
        if let (Some(o), false) = (missing, derivative.forward.is_empty()) {
            let message = format!("the output `{}` has no forward formula although others have", results[*o]);
            return Err(at(self.entry.line, Kind::EmitForwardCount, message));
        }
        Ok(Some(derivative))
    }

    fn differentiable_outputs(&self) -> Result<Vec<usize>> {
        let count = match &self.op.returns {
            Returns::Tensor | Returns::List => 1,
            Returns::Tensors(names) => names.len(),
            Returns::Nothing | Returns::Value(_) => 0,
        };
        let Some(node) = self.entry.get("output_differentiability") else { return Ok((0..count).collect()) };
        let list: Option<Vec<bool>> = node.as_list().and_then(|l| l.iter().map(Node::as_bool).collect());
        let Some(list) = list else {
            let message = "`output_differentiability` is a list of True and False, one per result";
            return Err(at(node.line, Kind::FieldValue, message));
        };
        if list.len() != count {
            let message = format!("`output_differentiability` has {} values for {count} results", list.len());
            return Err(at(node.line, Kind::OutdiffLength, message));
        }
        Ok((0..count).filter(|&k| list[k]).collect())
    }

    /// `MulBackward0`: from the base name, counted per name over the file; or the one that `node:` says.
    fn node_name(&self, counters: &mut HashMap<String, usize>) -> Result<String> {
        if let Some(node) = self.entry.get("node") {
            let text = node.as_str().filter(|t| syn::parse_str::<syn::Ident>(t).is_ok());
            return text.map(str::to_owned).ok_or_else(|| at(node.line, Kind::FieldValue, "`node` is a Rust name"));
        }
        let mut prefix = String::new();
        for piece in self.op.base().split('_') {
            let mut after_letter = false;
            for c in piece.chars() {
                match after_letter {
                    true => prefix.extend(c.to_lowercase()),
                    false => prefix.extend(c.to_uppercase()),
                }
                after_letter = c.is_alphabetic();
            }
        }
        let prefix = format!("{prefix}Backward").replace("ForwardBackward", "Backward");
        let counter = counters.entry(prefix.clone()).or_default();
        *counter += 1;
        Ok(format!("{prefix}{}", *counter - 1))
    }

    /// Arguments and results with their types, as formulas name them.
    fn values(&self) -> Vec<(String, Ty)> {
        let results = self
            .op
            .result_names()
            .into_iter()
            .map(|n| (n, if self.op.returns == Returns::List { Ty::Tensors } else { Ty::Tensor }));
        self.op.args().map(|a| (a.name.clone(), a.ty)).chain(results).collect()
    }

    fn backward(&self, d: &mut Derivative, formulas: &[(Vec<String>, Formula)]) -> Result<()> {
        let values = self.values();
        let results = self.op.result_names();
        let gradient_names: Vec<(String, usize)> =
            d.outputs.iter().enumerate().map(|(slot, &o)| (format!("grad_{}", results[o]), slot)).collect();
        let uses_grads = formulas.iter().any(|(_, f)| f.uses("grads"));
        d.uses_grad = formulas.iter().any(|(_, f)| f.uses("grad"));
        d.named_gradients =
            gradient_names.iter().filter(|(n, _)| formulas.iter().any(|(_, f)| f.uses(n))).cloned().collect();
        let ways = [uses_grads, d.uses_grad, !d.named_gradients.is_empty()].iter().filter(|w| **w).count();
        if ways > 1 {
            let message = "use one of `grad`, `grads` and named gradients in an entry, not several";
            return Err(formulas[0].1.error(Kind::GradAndGrads, message));
        }
        let mut order: Vec<usize> = (0..formulas.len()).collect();
        let input_names: Vec<String> = d.inputs.iter().map(|a| a.name.clone()).collect();
        let position = |n: &str| input_names.iter().position(|a| a == n).unwrap_or(usize::MAX);
        order.sort_by_key(|&k| position(&formulas[k].0[0]));
        // Which steps use each whole tensor, for guards.
        let mut users: HashMap<String, Vec<usize>> = HashMap::new();
        for k in order {
            let (names, f) = &formulas[k];
            let mut expr = f.expr.clone();
            let attributes = formula::take_attributes(&mut expr, &values);
            let mut scope: Vec<(String, Ty)> = values.clone();
            scope.extend(attributes.iter().map(|a| (a.name.clone(), a.ty)));
            scope.push(("grad".to_owned(), Ty::Tensor));
            scope.extend(gradient_names.iter().map(|(n, _)| (n.clone(), Ty::OptTensor)));
            for a in attributes {
                self.save(d, Some(a), None);
            }
            for (name, ty) in values.iter().filter(|(n, _)| formula::uses(&expr, n)) {
                let output = results.iter().position(|r| r == name);
                if output.is_some() && *ty == Ty::Tensors {
                    return Err(f.error(Kind::EmitListResult, "a node cannot keep a list of results"));
                }
                users.entry(name.clone()).or_default().push(d.steps.len());
                self.save(d, None, Some((name, *ty, output)));
            }
            let uses_mask = f.uses("grad_input_mask");
            let expr = rewrite(f, expr, &scope, self.index)?;
            let inputs = names.iter().map(|n| position(n)).collect();
            d.steps.push(Step { inputs, expr, uses_mask });
        }
        if d.list_input().is_none() && d.inputs.len() > 1 && !self.op.base().contains("backward") {
            for s in d.saved.iter_mut().filter(|s| s.read.is_none() && s.ty == Ty::Tensor && s.output.is_none()) {
                if let [only] = users[&s.name].as_slice()
                    && let [input] = d.steps[*only].inputs.as_slice()
                {
                    s.guard = Some(*input);
                }
            }
        }
        d.saved.sort_by(|a, b| (a.output.is_some(), &a.name).cmp(&(b.output.is_some(), &b.name)));
        Ok(())
    }

    /// Notes a value to keep, once.
    fn save(&self, d: &mut Derivative, attribute: Option<Attribute>, whole: Option<(&String, Ty, Option<usize>)>) {
        let output_of = |n: &str| self.op.result_names().iter().position(|r| r == n);
        let saved = match (attribute, whole) {
            (Some(a), _) => {
                let output = output_of(&a.of);
                Saved { name: a.name, ty: a.ty, of: a.of, read: Some(a.read), guard: None, output }
            }
            (None, Some((name, ty, output))) => {
                Saved { name: name.clone(), ty, of: name.clone(), read: None, guard: None, output }
            }
            (None, None) => return,
        };
        if !d.saved.iter().any(|s| s.name == saved.name) {
            d.saved.push(saved);
        }
    }

    fn forward(
        &self,
        d: &Derivative,
        key: &str,
        text: &str,
        line: usize,
        backward: &[(Vec<String>, Formula)],
    ) -> Result<Forward> {
        let results = self.op.result_names();
        let output = results.iter().position(|r| r == key || *r == ident(key)).unwrap_or(0);
        if !d.outputs.contains(&output) {
            return Err(at(line, Kind::FwNoOutput, format!("`{key}` is not differentiable, so it has no tangent")));
        }
        let formula = match text {
            "auto_linear" => self.auto_linear(d, line)?,
            "auto_element_wise" => auto_element_wise(d, line, backward)?,
            _ => Formula::parse(text, line)?,
        };
        let mut scope: Vec<(String, Ty)> = Vec::new();
        for a in self.op.args() {
            let differentiable = d.inputs.iter().any(|i| i.name == a.name);
            if differentiable {
                scope.push((format!("{}_t", a.name), a.ty));
                scope.push((format!("{}_p", a.name), a.ty));
            }
            if differentiable && !a.ty.is_tensor_list() && formula.uses(&a.name) {
                let message = format!(
                    "`{0}` is ambiguous in a forward formula: write `{0}_p` for its value or `{0}_t` for its tangent",
                    a.name
                );
                return Err(formula.error(Kind::FwBaseName, message));
            }
            scope.push((a.name.clone(), a.ty));
        }
        scope.extend(
            results
                .iter()
                .map(|r| (r.clone(), if self.op.returns == Returns::List { Ty::Tensors } else { Ty::Tensor })),
        );
        let with = |suffix: &str| {
            let used = d.inputs.iter().filter(|a| formula.uses(&format!("{}{suffix}", a.name)));
            used.map(|a| a.name.clone()).collect::<BTreeSet<_>>()
        };
        let (tangents, primals) = (with("_t"), with("_p"));
        if tangents.is_empty() {
            return Err(formula.error(Kind::EmitNoTangent, "a forward formula uses a tangent, such as `self_t`"));
        }
        let expr = rewrite(&formula, formula.expr.clone(), &scope, self.index)?;
        Ok(Forward { output, expr, tangents, primals })
    }

    /// The op again, on tangents.
    fn auto_linear(&self, d: &Derivative, line: usize) -> Result<Formula> {
        let args = self.op.args().map(|a| match d.inputs.iter().any(|i| i.name == a.name) {
            true => format!("{}_t", a.name),
            false => a.name.clone(),
        });
        let functional = self.op.rust.trim_end_matches('_').to_owned();
        let name = if self.op.schema.kind() == SchemaKind::Inplace { functional } else { self.op.rust.clone() };
        Formula::parse(&format!("{name}({})", args.collect::<Vec<_>>().join(", ")), line)
    }
}

/// The backward formula with the tangent for the gradient: right where the Jacobian is diagonal.
fn auto_element_wise(d: &Derivative, line: usize, backward: &[(Vec<String>, Formula)]) -> Result<Formula> {
    let ([input], [(names, formula)]) = (d.inputs.as_slice(), backward) else {
        let message = "`auto_element_wise` needs exactly one differentiable argument with one formula";
        return Err(at(line, Kind::AutoElemArity, message));
    };
    if names.len() != 1 || d.outputs.len() != 1 {
        return Err(at(line, Kind::AutoElemArity, "`auto_element_wise` needs one argument and one result"));
    }
    let (tangent, primal) = (format!("{}_t", input.name), format!("{}_p", input.name));
    let conjugates = formula.text.contains(".conj()");
    let mut expr = formula.expr.clone();
    formula::substitute(&mut expr, &|n| match n {
        "grad" if conjugates => {
            let t = formula::name(&tangent);
            Some(syn::parse_quote!(#t.conj()))
        }
        "grad" => Some(formula::name(&tangent)),
        n if n == input.name => Some(formula::name(&primal)),
        _ => None,
    });
    if conjugates {
        expr = syn::parse_quote!((#expr).conj());
    }
    Ok(Formula { line, text: formula.text.clone(), expr })
}
