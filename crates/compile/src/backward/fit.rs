//! One graph for many values: two traces of one structure, at different sizes and numbers, become a graph that takes what
//! varies as inputs.
//!
//! Where an argument differs between the traces it must be an expression of the numbers that differ. Two values cannot prove
//! an expression, so nothing is taken for granted: a graph is used for new values only after a trace at these values gave
//! the very same calls with the arguments that the expressions predict.

use super::key::Class;
use firebrand_core::Scalar;
use firebrand_core::sym::SymOp;
use firebrand_graph::dynamic::{SizeExpr, size_function};
use firebrand_graph::ir::{Argument, Function, GraphModule, InsertPoint, Kind, Name, NodeId, Symbolic, Target, Val};
use std::collections::HashMap;

/// A graph without its numbers, and the numbers in order.
#[derive(PartialEq)]
pub(crate) struct Flat {
    tokens: Vec<Token>,
    numbers: Vec<Scalar>,
}

#[derive(PartialEq)]
enum Token {
    Placeholder,
    /// A tensor that the graph holds, by its number.
    Held(usize),
    Call(Target),
    Output,
    Named(Name),
    Node(usize),
    Open(usize),
    Int,
    Float,
    Other(Argument),
    /// Something that is like nothing else.
    Unknown,
}

impl Flat {
    pub(crate) fn new(module: &GraphModule) -> Flat {
        let mut flat = Flat { tokens: Vec::new(), numbers: Vec::new() };
        let mut places: HashMap<NodeId, usize> = HashMap::new();
        for n in module.graph.nodes() {
            places.insert(n, places.len());
            let node = &module.graph[n];
            flat.tokens.push(match node.kind() {
                Kind::Placeholder(_) => Token::Placeholder,
                Kind::Output => Token::Output,
                Kind::CallFunction(target) => Token::Call(target.clone()),
                Kind::GetAttr(path) => {
                    let tensor = module.attributes.get(path).and_then(|a| a.tensor());
                    tensor.map_or(Token::Unknown, |t| Token::Held(t.id()))
                }
                _ => Token::Unknown,
            });
            flat.tokens.push(Token::Open(node.args().len()));
            node.args().iter().for_each(|a| flat.argument(a, &places));
            for (name, a) in node.kwargs() {
                flat.tokens.push(Token::Named(name.clone()));
                flat.argument(a, &places);
            }
        }
        flat
    }

    fn argument(&mut self, a: &Argument, places: &HashMap<NodeId, usize>) {
        match a {
            Argument::Int(i) => {
                self.tokens.push(Token::Int);
                self.numbers.push(Scalar::Int(*i));
            }
            Argument::Float(v) => {
                self.tokens.push(Token::Float);
                self.numbers.push(Scalar::Float(*v));
            }
            Argument::Node(n) => self.tokens.push(Token::Node(places[n])),
            Argument::Tuple(items) | Argument::List(items) => {
                self.tokens.push(Token::Open(items.len()));
                items.iter().for_each(|a| self.argument(a, places));
            }
            other => self.tokens.push(Token::Other(other.clone())),
        }
    }
}

/// Numbers of one run, by place.
#[derive(Clone, Copy)]
pub(crate) struct Numbers<'a> {
    pub(crate) words: &'a [u64],
    pub(crate) classes: &'a [Class],
}

impl Numbers<'_> {
    pub(crate) fn scalar(&self, i: usize) -> Scalar {
        match self.classes[i] {
            Class::Float => Scalar::Float(f64::from_bits(self.words[i])),
            _ => Scalar::Int(self.words[i] as i64),
        }
    }

    fn float(&self, i: usize) -> f64 {
        self.scalar(i).to_f64()
    }

    fn int(&self, i: usize) -> Option<i64> {
        matches!(self.scalar(i), Scalar::Int(_)).then(|| self.words[i] as i64)
    }
}

/// An argument in terms of numbers that vary; symbols are their places.
#[derive(Clone, Debug, PartialEq)]
enum Expr {
    /// An integer.
    Size(SizeExpr),
    /// `number op of`, in floats.
    Float { op: SymOp, number: f64, of: usize },
}

impl Expr {
    fn for_each_place(&self, see: &mut impl FnMut(usize)) {
        match self {
            Expr::Size(e) => e.for_each_symbol(&mut |s| see(s as usize)),
            Expr::Float { of, .. } => see(*of),
        }
    }

    fn eval(&self, n: Numbers<'_>) -> Option<Scalar> {
        Some(match self {
            Expr::Size(e) => Scalar::Int(e.value_where(&|s| n.int(s as usize))?),
            Expr::Float { op, number, of } => Scalar::Float(match op {
                SymOp::Add => number + n.float(*of),
                SymOp::Sub => number - n.float(*of),
                SymOp::Mul => number * n.float(*of),
                SymOp::Div => number / n.float(*of),
                SymOp::Rem => number % n.float(*of),
            }),
        })
    }

    /// The expression that gives `a` at `old` and `b` at `new`, the simplest first.
    fn find(a: Scalar, b: Scalar, old: Numbers<'_>, new: Numbers<'_>, varying: &[usize]) -> Option<Expr> {
        let right = |e: &Expr| e.eval(old).is_some_and(|v| same(v, a)) && e.eval(new).is_some_and(|v| same(v, b));
        let first = |make: &dyn Fn(usize) -> Option<Expr>| varying.iter().filter_map(|&i| make(i)).find(right);
        let symbol = |of: usize| SizeExpr::Symbol(of as u32);
        let affine = |of: usize, mul: i64, add: i64| Some(Expr::Size(symbol(of).times(mul).plus(add)));
        let float = |op: SymOp, number: f64| first(&|of| Some(Expr::Float { op, number, of }));
        match (a, b) {
            (Scalar::Int(a), Scalar::Int(b)) => first(&|of| affine(of, 1, 0))
                .or_else(|| first(&|of| affine(of, a.checked_div(old.int(of)?)?, 0)))
                .or_else(|| {
                    let product = |a: usize, b: usize| SizeExpr::binary(SymOp::Mul, symbol(a), symbol(b));
                    let pairs = varying.iter().flat_map(|&a| varying.iter().map(move |&b| Expr::Size(product(a, b))));
                    pairs.into_iter().find(right)
                })
                .or_else(|| {
                    first(&|of| {
                        let (from, to) = (old.int(of)?, new.int(of)?);
                        let mul = b.checked_sub(a)?.checked_div(to.checked_sub(from)?)?;
                        affine(of, mul, a.checked_sub(mul.checked_mul(from)?)?)
                    })
                }),
            (Scalar::Float(a), Scalar::Float(_)) => {
                use SymOp::{Add, Div, Mul, Sub};
                [(Mul, 1.0), (Mul, -1.0), (Add, -1.0), (Add, 1.0), (Sub, 1.0), (Div, 1.0), (Div, -1.0)]
                    .into_iter()
                    .find_map(|(op, number)| float(op, number))
                    .or_else(|| first(&|of| Some(Expr::Float { op: Mul, number: a / old.float(of), of })))
                    .or_else(|| first(&|of| Some(Expr::Float { op: Div, number: a * old.float(of), of })))
            }
            _ => None,
        }
    }
}

fn same(a: Scalar, b: Scalar) -> bool {
    match (a, b) {
        (Scalar::Int(a), Scalar::Int(b)) => a == b,
        (Scalar::Float(a), Scalar::Float(b)) => a.to_bits() == b.to_bits(),
        _ => false,
    }
}

/// A graph and the places where its arguments vary.
pub(crate) struct Template {
    flat: Flat,
    varying: Vec<(usize, Expr)>,
}

impl Template {
    /// Nothing varies.
    pub(crate) fn fixed(flat: Flat) -> Template {
        Template { flat, varying: Vec::new() }
    }

    /// The template of two traces, or the second one again if an argument differs and no expression gives it.
    pub(crate) fn of(
        old: &Flat,
        old_numbers: Numbers<'_>,
        new: Flat,
        new_numbers: Numbers<'_>,
    ) -> Result<Template, Flat> {
        if old.tokens != new.tokens {
            return Err(new);
        }
        let differs = |i: &usize| old_numbers.words[*i] != new_numbers.words[*i];
        let numbers: Vec<usize> = (0..new_numbers.words.len()).filter(differs).collect();
        let mut varying = Vec::new();
        for (k, (&a, &b)) in old.numbers.iter().zip(&new.numbers).enumerate() {
            if same(a, b) {
                continue;
            }
            match Expr::find(a, b, old_numbers, new_numbers, &numbers) {
                Some(e) => varying.push((k, e)),
                None => return Err(new),
            }
        }
        Ok(Template { flat: new, varying })
    }

    /// Whether a trace at these numbers is the graph of this template.
    pub(crate) fn predicts(&self, trace: &Flat, numbers: Numbers<'_>) -> bool {
        if self.flat.tokens != trace.tokens {
            return false;
        }
        let mut varying = self.varying.iter().peekable();
        trace.numbers.iter().enumerate().all(|(k, found)| match varying.next_if(|(at, _)| *at == k) {
            Some((_, e)) => e.eval(numbers).is_some_and(|v| same(v, *found)),
            None => same(self.flat.numbers[k], *found),
        })
    }

    /// The first trace.
    pub(crate) fn flat(&self) -> &Flat {
        &self.flat
    }

    /// Gives the graph an input for each number that it needs; returns their places.
    pub(crate) fn lift(&self, module: &mut GraphModule, hints: Numbers<'_>) -> Vec<usize> {
        let order: Vec<NodeId> = module.graph.nodes().collect();
        let mut lift = Lift { hints, inputs: Vec::new(), made: Vec::new(), at: 0, varying: &self.varying };
        lift.add_inputs(module);
        for n in order {
            let (args, kwargs) = (module.graph[n].args().to_vec(), module.graph[n].kwargs().to_vec());
            let left = lift.varying.len();
            let args: Vec<Argument> = args.iter().map(|a| lift.argument(a, n, module)).collect();
            let kwargs: Vec<_> = kwargs.iter().map(|(k, a)| (k.clone(), lift.argument(a, n, module))).collect();
            if lift.varying.len() < left {
                module.graph.set_arguments(n, args, kwargs);
            }
        }
        lift.inputs.iter().map(|(place, _)| *place).collect()
    }
}

/// A graph whose varying arguments become nodes.
struct Lift<'a> {
    hints: Numbers<'a>,
    /// Places of numbers and their placeholders.
    inputs: Vec<(usize, NodeId)>,
    made: Vec<(Expr, Argument)>,
    /// How many numbers of the graph were passed.
    at: usize,
    /// What is still to be replaced.
    varying: &'a [(usize, Expr)],
}

impl Lift<'_> {
    fn add_inputs(&mut self, module: &mut GraphModule) {
        let graph = &mut module.graph;
        let mut last = graph.placeholders().last();
        for (_, e) in self.varying {
            let mut places = Vec::new();
            e.for_each_place(&mut |place| places.push(place));
            for place in places {
                if self.inputs.iter().any(|(p, _)| *p == place) {
                    continue;
                }
                let at = last.map_or(InsertPoint::Front, InsertPoint::After);
                let n = graph.inserting(at, |g| g.placeholder(&format!("number_{}", self.inputs.len())));
                graph.meta_mut(n).val = Some(match self.hints.scalar(place) {
                    Scalar::Float(v) => Val::SymFloat(Symbolic::Known(v)),
                    other => Val::SymInt(Symbolic::Known(other.to_i64())),
                });
                self.inputs.push((place, n));
                last = Some(n);
            }
        }
    }

    fn argument(&mut self, a: &Argument, user: NodeId, module: &mut GraphModule) -> Argument {
        match a {
            Argument::Int(_) | Argument::Float(_) => {
                let here = self.at;
                self.at += 1;
                match self.varying.split_first() {
                    Some(((at, e), rest)) if *at == here => {
                        self.varying = rest;
                        self.expression(e, user, module)
                    }
                    _ => a.clone(),
                }
            }
            Argument::Tuple(items) => Argument::tuple(self.items(items, user, module)),
            Argument::List(items) => Argument::list(self.items(items, user, module)),
            other => other.clone(),
        }
    }

    fn items(&mut self, items: &[Argument], user: NodeId, module: &mut GraphModule) -> Vec<Argument> {
        items.iter().map(|a| self.argument(a, user, module)).collect()
    }

    fn expression(&mut self, e: &Expr, user: NodeId, module: &mut GraphModule) -> Argument {
        if let Some((_, made)) = self.made.iter().find(|(known, _)| known == e) {
            return made.clone();
        }
        let made = match e {
            Expr::Size(SizeExpr::Int(i)) => return (*i).into(),
            Expr::Size(SizeExpr::Symbol(s)) => return self.input(*s as usize),
            Expr::Size(SizeExpr::Binary(op, parts)) => {
                let mut part = |e: &SizeExpr| self.expression(&Expr::Size(e.clone()), user, module);
                let args = [part(&parts.0), part(&parts.1)];
                self.call(size_function(*op), args, e, user, module)
            }
            Expr::Float { op: SymOp::Mul, number: 1.0, of } if matches!(self.hints.scalar(*of), Scalar::Float(_)) => {
                return self.input(*of);
            }
            Expr::Float { op, number, of } => {
                let function = if *op == SymOp::Div { Function::TrueDiv } else { size_function(*op) };
                self.call(function, [(*number).into(), self.input(*of)], e, user, module)
            }
        };
        self.made.push((e.clone(), made.clone()));
        made
    }

    /// The input for the number of this place.
    fn input(&self, place: usize) -> Argument {
        let found = self.inputs.iter().find(|(p, _)| *p == place);
        found.map(|(_, n)| (*n).into()).expect("every number of an expression is an input")
    }

    /// A node that computes `e`, before its first reader.
    fn call(&self, f: Function, args: [Argument; 2], e: &Expr, user: NodeId, module: &mut GraphModule) -> Argument {
        let n = module.graph.inserting(InsertPoint::Before(user), |g| g.call_function(f, args));
        module.graph.meta_mut(n).val = Some(match e.eval(self.hints) {
            Some(Scalar::Float(v)) => Val::SymFloat(Symbolic::Known(v)),
            Some(other) => Val::SymInt(Symbolic::Known(other.to_i64())),
            None => Val::None,
        });
        n.into()
    }
}
