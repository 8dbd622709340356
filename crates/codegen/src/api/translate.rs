//! Translation between calling conventions: given what is in scope, an expression for each goal.
//!
//! A value is identified by what it stands for and its type. Goals found in scope are used as they are;
//! otherwise one rule may convert. Rules never chain, except that references are taken and dropped freely.

use super::{Binding, POSSIBLY_REDUNDANT_MEMORY_FORMAT};
use crate::ctype::{CBase, CType};
use crate::error::{Kind, Refusal};
use indexmap::IndexMap;

type Check<T> = std::result::Result<T, Refusal>;

/// Which conversions are allowed beyond the cheap ones.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Allow {
    /// `self` is the object whose method this is.
    pub method: bool,
    /// Copies of memory.
    pub expensive_conversions: bool,
}

/// Expressions for the goals, in order.
pub fn translate(scope: &[Binding], goals: &[Binding], allow: Allow) -> Check<Vec<String>> {
    let mut solver = Solver { known: IndexMap::new(), goals, allow };
    for binding in scope {
        solver.add(binding);
    }
    if allow.method {
        let this = || "const_cast<Tensor&>(*this)".to_owned();
        solver.insert("self", CType::from(CBase::Tensor).mut_ref(), this());
        solver.insert("self", CType::from(CBase::Tensor).const_ref(), this());
    }
    goals.iter().map(|goal| solver.solve(&goal.binds, &goal.ty)).collect()
}

struct Solver<'a> {
    known: IndexMap<(String, CType), String>,
    goals: &'a [Binding],
    allow: Allow,
}

fn base(base: CBase) -> CType {
    CType::Base(base)
}

impl Solver<'_> {
    fn insert(&mut self, name: &str, ty: CType, expr: String) {
        self.known.insert((name.to_owned(), ty), expr);
    }

    /// Puts a value in scope, with the views of it that cost nothing.
    fn add(&mut self, binding: &Binding) {
        let (name, e) = (binding.binds.as_str(), &binding.name);
        self.insert(name, binding.ty.clone(), e.clone());
        let tensor = || base(CBase::Tensor);
        if binding.ty == tensor().optional().const_ref() {
            let some = format!("{e}.has_value() && (*{e}).defined()");
            let expr = format!("(({some}) ? at::OptionalTensorRef(*{e}) : at::OptionalTensorRef())");
            self.insert(name, base(CBase::OptionalTensorRef), expr);
        } else if binding.ty == base(CBase::Scalar).const_ref() {
            self.insert(name, base(CBase::OpmathT), format!("({e}).to<opmath_t>()"));
        } else if binding.ty == base(CBase::Scalar).optional().const_ref() {
            let expr = format!("({e}.has_value() ? at::OptionalScalarRef(&({e}.value())) : at::OptionalScalarRef())");
            self.insert(name, base(CBase::OptionalScalarRef), expr);
        } else if binding.ty == base(CBase::ScalarT) {
            self.insert(name, base(CBase::OpmathT), format!("static_cast<opmath_t>({e})"));
        } else if binding.ty == CType::List(Box::new(tensor().optional())).const_ref() {
            self.insert(name, base(CBase::IOptTensorListRef), format!("at::IOptTensorListRef({e})"));
        }
    }

    /// A value in scope, taking or dropping references.
    fn direct(&self, name: &str, ty: &CType) -> Option<String> {
        if let Some(expr) = self.known.get(&(name.to_owned(), ty.clone())) {
            return Some(expr.clone());
        }
        match ty {
            CType::ConstRef(elem) => self.direct(name, &elem.clone().mut_ref()),
            CType::MutRef(elem) => self.direct(name, elem),
            CType::ArrayRef(elem) if **elem == base(CBase::Long) => self.direct(name, &base(CBase::IntArrayRef)),
            _ => None,
        }
    }

    fn options(&self) -> Option<String> {
        self.direct("options", &base(CBase::TensorOptions).const_ref())
    }

    fn out(&self) -> Option<String> {
        self.direct("out", &base(CBase::Tensor).const_ref())
    }

    /// A value in scope or one conversion away.
    fn solve(&self, name: &str, ty: &CType) -> Check<String> {
        let by_reference = || match ty {
            CType::ConstRef(elem) => self.solve(name, &elem.clone().mut_ref()).ok(),
            CType::MutRef(elem) => self.solve(name, elem).ok(),
            CType::ArrayRef(elem) if **elem == base(CBase::Long) => self.solve(name, &base(CBase::IntArrayRef)).ok(),
            _ => None,
        };
        let found = self.known.get(&(name.to_owned(), ty.clone())).cloned().or_else(by_reference);
        let found = found.or_else(|| self.by_options(name, ty));
        let found = found.or_else(|| self.symbolic(name, ty));
        let found = found.or_else(|| self.expensive(name, ty).filter(|_| self.allow.expensive_conversions));
        found.or_else(|| self.mutable_tensor(name, ty)).ok_or_else(|| self.unsatisfied(name, ty))
    }

    /// Tensor options from their parts, or parts from options or from the out tensor.
    fn by_options(&self, name: &str, ty: &CType) -> Option<String> {
        let part = |name: &str, of: CBase| self.direct(name, &base(of).optional());
        let is = |of: CBase| *ty == base(of).optional();
        match name {
            "memory_format" if is(CBase::MemoryFormat) => {
                let format = part(POSSIBLY_REDUNDANT_MEMORY_FORMAT, CBase::MemoryFormat)?;
                let options = base(CBase::TensorOptions).const_ref();
                let wanted = self.goals.iter().any(|goal| goal.binds == "options" && goal.ty == options);
                Some(match self.options().filter(|_| !wanted) {
                    Some(options) => {
                        format!("c10::impl::check_tensor_options_and_extract_memory_format({options}, {format})")
                    }
                    None => format,
                })
            }
            "options" if *ty == base(CBase::TensorOptions) => {
                let dtype = part("dtype", CBase::ScalarType)?;
                let layout = part("layout", CBase::Layout)?;
                let device = part("device", CBase::Device)?;
                let pin_memory = part("pin_memory", CBase::Bool)?;
                Some(format!(
                    "TensorOptions().dtype({dtype}).layout({layout}).device({device}).pinned_memory({pin_memory})"
                ))
            }
            "dtype" if is(CBase::ScalarType) => match self.options() {
                Some(options) => Some(format!("c10::optTypeMetaToScalarType({options}.dtype_opt())")),
                None => Some(format!("{}.scalar_type()", self.out()?)),
            },
            "layout" if is(CBase::Layout) => match self.options() {
                Some(options) => Some(format!("{options}.layout_opt()")),
                None => Some(format!("{}.layout()", self.out()?)),
            },
            "device" if is(CBase::Device) => match self.options() {
                Some(options) => Some(format!("{options}.device_opt()")),
                None => Some(format!("{}.device()", self.out()?)),
            },
            "pin_memory" if is(CBase::Bool) => match self.options() {
                Some(options) => Some(format!("{options}.pinned_memory_opt()")),
                None => self.out().map(|_| "::std::nullopt".to_owned()),
            },
            _ => None,
        }
    }

    /// Plain and symbolic integers, lists of them, and light references to optionals.
    fn symbolic(&self, name: &str, ty: &CType) -> Option<String> {
        let direct = |ty: CType| self.direct(name, &ty);
        let if_some =
            |e: &str, value: String| format!("{e}.has_value() ? ::std::make_optional({value}) : ::std::nullopt");
        match ty {
            CType::Base(CBase::IntArrayRef) => direct(base(CBase::Long).vector())
                .or_else(|| direct(base(CBase::SymIntArrayRef)).map(|e| format!("C10_AS_INTARRAYREF_SLOW({e})"))),
            CType::Base(CBase::SymIntArrayRef) => direct(base(CBase::IntArrayRef))
                .map(|e| format!("c10::fromIntArrayRefSlow({e})"))
                .or_else(|| direct(base(CBase::SymInt).vector())),
            CType::Base(CBase::SymInt) => direct(base(CBase::Long)),
            CType::Base(CBase::Long) => {
                direct(base(CBase::SymInt)).map(|e| format!("{e}.guard_int(__FILE__, __LINE__)"))
            }
            CType::Optional(elem) if **elem == base(CBase::SymInt) => {
                direct(base(CBase::Long).optional()).map(|e| if_some(&e, format!("c10::SymInt(*{e})")))
            }
            CType::Optional(elem) if **elem == base(CBase::Long) => direct(base(CBase::SymInt).optional())
                .map(|e| if_some(&e, format!("{e}->guard_int(__FILE__, __LINE__)"))),
            CType::Base(CBase::OptionalIntArrayRef) => direct(base(CBase::Long).vector().optional()).or_else(|| {
                direct(base(CBase::OptionalSymIntArrayRef))
                    .map(|e| if_some(&e, format!("C10_AS_INTARRAYREF_SLOW(*{e})")))
            }),
            CType::Base(CBase::OptionalSymIntArrayRef) => {
                direct(base(CBase::OptionalIntArrayRef)).map(|e| if_some(&e, format!("c10::fromIntArrayRefSlow(*{e})")))
            }
            CType::Base(CBase::OptionalScalarRef) => direct(base(CBase::Scalar).optional()),
            CType::Base(CBase::OptionalTensorRef) => direct(base(CBase::Tensor).optional()),
            _ => None,
        }
    }

    /// Conversions that copy memory.
    fn expensive(&self, name: &str, ty: &CType) -> Option<String> {
        let direct = |ty: CType| self.direct(name, &ty);
        let if_some =
            |e: &str, value: &str| format!("{e}.has_value() ? ::std::make_optional({value}) : ::std::nullopt");
        match ty {
            CType::Vector(elem) if **elem == base(CBase::Long) => {
                direct(base(CBase::IntArrayRef)).map(|e| format!("{e}.vec()"))
            }
            CType::Vector(elem) if **elem == base(CBase::SymInt) => {
                direct(base(CBase::SymIntArrayRef)).map(|e| format!("{e}.vec()"))
            }
            CType::Base(CBase::Tensor) => direct(base(CBase::Tensor).const_ref()),
            CType::Optional(elem) if **elem == base(CBase::Tensor) => direct(ty.clone().const_ref()),
            CType::Optional(elem) if **elem == base(CBase::Long).vector() => {
                direct(base(CBase::OptionalIntArrayRef)).map(|e| if_some(&e, &format!("{e}->vec()")))
            }
            CType::Optional(elem) if **elem == base(CBase::Scalar) => {
                direct(base(CBase::OptionalScalarRef)).map(|e| if_some(&e, &e))
            }
            _ => None,
        }
    }

    /// A mutable tensor from a constant one, by cast.
    fn mutable_tensor(&self, name: &str, ty: &CType) -> Option<String> {
        let wanted = *ty == base(CBase::Tensor).mut_ref();
        let constant = self.known.get(&(name.to_owned(), base(CBase::Tensor).const_ref())).filter(|_| wanted);
        constant.map(|e| format!("const_cast<Tensor&>({e})"))
    }

    fn unsatisfied(&self, name: &str, ty: &CType) -> Refusal {
        let known: Vec<_> = self.known.keys().map(|(name, ty)| format!("{ty} {name}")).collect();
        let message = format!("no expression for `{ty} {name}`; available: {}", known.join(", "));
        Refusal::new(Kind::TranslateUnsatisfied, message)
    }
}
