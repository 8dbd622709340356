//! The plan of a wrapper: the function that records nodes and sets tangents around a kernel.

use super::saves::{is_saved_variable, saves};
use super::{ForwardAd, GeneratedWrapper, History, Wrapper, WrapperPlan};
use crate::api::cpp;
use crate::error::{Kind, Refusal};
use crate::model::{DifferentiabilityInfo, ForwardDerivative, FunctionWithInfo};
use crate::names;
use crate::native::NativeFunction;
use crate::outputs::{DifferentiableOutput, differentiable_outputs, is_differentiable};
use crate::schema::{Argument, SchemaKind, Type};

type Check<T = ()> = std::result::Result<T, Refusal>;

fn fail<T>(kind: Kind, message: impl Into<String>) -> Check<T> {
    Err(Refusal::new(kind, message))
}

/// Whether a function gets a wrapper that is not written by hand.
pub(super) fn needs_wrapper(f: &FunctionWithInfo) -> bool {
    match &f.func.rust {
        None => f.use_derived() && !names::contains(names::NO_WRAPPER, &cpp::name(&f.func.func)),
        Some(rust) => rust.implementation.has_below(),
    }
}

/// Plans the wrappers of one function.
pub fn plan_wrapper(f: &FunctionWithInfo) -> Check<WrapperPlan> {
    let func = &f.func;
    let name = cpp::name(&func.func);
    for a in func.func.arguments.flat_all() {
        cpp::value_type(&a.ty, true)?;
    }
    let mut by_key = Vec::new();
    if is_fallback(f, &name)? {
        by_key.push((crate::model::DEFAULT_KEY.to_owned(), Wrapper::NotImplementedFallback));
    } else {
        for (key, info) in f.keys() {
            let context = Context::new(func, info.map(|info| &**info), f.forward(key), &name)?;
            let outputs = differentiable_outputs(f, context.info)?;
            by_key.push((key.to_owned(), Wrapper::Generated(Box::new(generated(&context, &outputs)?))));
        }
    }
    if names::contains(names::MANUAL_KERNEL, &name) != func.manual_kernel_registration {
        return fail(Kind::FieldValue, format!("`manual_kernel_registration` of `{name}` is not as its name says"));
    }
    let has_formula = f.info.iter().flat_map(|infos| infos.values()).any(|info| info.has_derivatives());
    if has_formula && !func.is_abstract {
        let message = format!("`{name}` has a formula, so it needs a dispatch section");
        return fail(Kind::EmitNeedsDispatch, message);
    }
    Ok(WrapperPlan { schema: func.text.clone(), by_key })
}

/// Whether the generic "not implemented" wrapper will do.
fn is_fallback(f: &FunctionWithInfo, name: &str) -> Check<bool> {
    let func = &f.func.func;
    if f.info.is_some()
        || names::contains(names::RESETS_ACCUMULATOR, &func.name.name.to_string())
        || names::contains(names::NEEDS_NO_DERIVATIVE, func.base())
        || differentiable_outputs(f, None)?.is_empty()
    {
        return Ok(false);
    }
    let overload = &func.name.overload_name;
    let wrapper_name = if overload.is_empty() { name.to_owned() } else { format!("{name}_{overload}") };
    Ok(!names::contains(names::MAY_CHANGE_INPUT_STORAGE, name)
        && !names::contains(names::OUTPUTS_MAY_BE_SHARED, &wrapper_name))
}

/// An argument that can carry a gradient.
pub(super) struct Input<'a> {
    pub(super) name: &'a str,
    ty: &'a Type,
}

impl Input<'_> {
    /// A list of tensors, optional or not.
    pub(super) fn is_tensor_list(&self) -> bool {
        self.ty.is_tensor_like() && self.ty.as_list().is_some()
    }
}

/// One function under one key.
pub(super) struct Context<'a> {
    func: &'a NativeFunction,
    pub(super) info: Option<&'a DifferentiabilityInfo>,
    forward: &'a [ForwardDerivative],
    name: &'a str,
    pub(super) in_place: bool,
    is_out: bool,
    pub(super) is_foreach: bool,
    /// In-place foreach with an info: its arguments beside those of the reference.
    pairs: Vec<(&'a Argument, &'a Argument)>,
    inputs: Vec<Input<'a>>,
    pub(super) with_derivatives: Vec<Input<'a>>,
}

impl<'a> Context<'a> {
    fn new(
        func: &'a NativeFunction,
        info: Option<&'a DifferentiabilityInfo>,
        forward: &'a [ForwardDerivative],
        name: &'a str,
    ) -> Check<Self> {
        let kind = func.kind();
        let mut context = Context {
            func,
            info,
            forward,
            name,
            in_place: kind == SchemaKind::Inplace,
            is_out: kind == SchemaKind::Out,
            is_foreach: name.starts_with("_foreach"),
            pairs: Vec::new(),
            inputs: Vec::new(),
            with_derivatives: Vec::new(),
        };
        if context.in_place_foreach() {
            context.pairs = context.pair_arguments()?;
        }
        context.inputs = context.differentiable_inputs();
        context.with_derivatives = context.find_with_derivatives()?;
        Ok(context)
    }

    pub(super) fn in_place_foreach(&self) -> bool {
        self.is_foreach && self.in_place
    }

    /// The foreach argument that plays the part of an argument of the reference.
    pub(super) fn foreach_argument(&self, reference: &str) -> Option<&'a Argument> {
        self.pairs.iter().find(|(_, r)| r.name == reference).map(|(a, _)| *a)
    }

    fn pair_arguments(&self) -> Check<Vec<(&'a Argument, &'a Argument)>> {
        let full_name = format!("{}.{}", self.func.func.base(), self.func.func.name.overload_name);
        let Some(info) = self.info else {
            if names::contains(names::INPLACE_FOREACH_WITHOUT_INFO, &full_name) {
                return Ok(Vec::new());
            }
            return fail(Kind::EmitForeachNoInfo, format!("`{full_name}` has no reference with a formula"));
        };
        let ours: Vec<_> = self.func.func.arguments.flat_non_out().collect();
        let theirs: Vec<_> = info.func.func.arguments.flat_non_out().collect();
        if ours.len() != theirs.len() && !names::contains(names::INPLACE_FOREACH_OTHER_ARITY, &full_name) {
            return fail(Kind::EmitForeachArity, format!("`{full_name}` and its reference differ in arity"));
        }
        let element = |ty: &'a Type| match ty {
            Type::List(elem, _) => elem,
            ty => ty,
        };
        if let Some((a, r)) = ours.iter().zip(&theirs).find(|(a, r)| *element(&a.ty) != r.ty) {
            return fail(Kind::Roundtrip, format!("`{a}` does not fit `{r}` of the reference"));
        }
        Ok(ours.into_iter().zip(theirs).collect())
    }

    fn differentiable_inputs(&self) -> Vec<Input<'a>> {
        let arguments = &self.func.func.arguments;
        // Of tensor options nothing is a tensor, so they need no special case.
        let all = arguments.flat_non_out().map(|a| {
            let reference = self.pairs.iter().find(|(ours, _)| ours.name == a.name).map(|(_, r)| *r);
            reference.unwrap_or(a)
        });
        let differentiable = all.filter(|a| is_differentiable(&a.name, &a.ty, self.info));
        differentiable.map(|a| Input { name: &a.name, ty: &a.ty }).collect()
    }

    fn find_with_derivatives(&self) -> Check<Vec<Input<'a>>> {
        let all = || self.inputs.iter().map(|input| Input { ..*input });
        let Some(info) = self.info.filter(|info| info.has_derivatives()) else { return Ok(all().collect()) };
        let vars = || info.derivatives.iter().flat_map(|d| &d.var_names);
        if let Some(missing) = vars().find(|var| !self.inputs.iter().any(|input| input.name == **var)) {
            let message = format!("`{missing}` has a formula but `{}` has no such tensor argument", self.name);
            return fail(Kind::EmitMissingArgs, message);
        }
        Ok(all().filter(|input| vars().any(|var| var == input.name)).collect())
    }

    fn is_view(&self) -> bool {
        let base = self.func.func.base();
        names::contains(names::VIEWS_OF_SELF, base) || names::contains(names::FURTHER_VIEWS_OF_SELF, base)
    }

    fn requires_derivative(&self, outputs: &[DifferentiableOutput]) -> bool {
        // Our own declarations say so themselves.
        let exempt = |name| self.func.rust.is_none() && names::contains(names::NEEDS_NO_DERIVATIVE, name);
        !exempt(self.func.func.base())
            && !exempt(self.name)
            && !self.inputs.is_empty()
            && (!outputs.is_empty() || self.in_place_foreach())
    }

    fn check(&self, required: bool, outputs: &[DifferentiableOutput]) -> Check {
        let has_derivatives = self.info.is_some_and(DifferentiabilityInfo::has_derivatives);
        if has_derivatives && !required && !self.func.func.returns.is_empty() {
            let message = format!("the derivative of `{}` would never be used", self.name);
            return fail(Kind::EmitDerivativeIgnored, message);
        }
        if !required || self.forward.is_empty() {
            return Ok(());
        }
        let computed: usize = self.forward.iter().map(|f| f.var_names.len()).sum();
        if !self.in_place_foreach() && computed != outputs.len() {
            let message = format!("forward formulas compute {computed} of {} differentiable outputs", outputs.len());
            return fail(Kind::EmitForwardCount, message);
        }
        let single_list = matches!(self.inputs.as_slice(), [only] if only.is_tensor_list());
        if !self.is_foreach && !single_list && self.forward.iter().any(|f| f.required_inputs_fw_grad.is_empty()) {
            let message = format!("a forward formula of `{}` uses no tangent", self.name);
            return fail(Kind::EmitNoTangent, message);
        }
        Ok(())
    }

    /// A view gives one tensor, or a list of them.
    fn check_view(&self) -> Check {
        let further = self.func.func.returns.iter().skip(1).any(|r| r.ty == Type::TENSOR);
        if !self.in_place && !self.is_out && self.is_view() && further {
            return fail(Kind::EmitViewOutputs, format!("the view `{}` returns several tensors", self.name));
        }
        Ok(())
    }

    fn check_forward_types(&self) -> Check {
        let is_list = |ty: &Type| ty.is_tensor_like() && matches!(ty, Type::List(..));
        let fits = |f: &&ForwardDerivative| match f.var_types.as_slice() {
            [Type::TENSOR] if self.is_foreach && !self.in_place => f.var_names[0] == "result",
            [only] if is_list(only) => true,
            types => types.iter().all(|ty| *ty == Type::TENSOR),
        };
        match self.forward.iter().find(|f| !fits(f)) {
            Some(f) => {
                let message = format!("no forward formula can compute `{}`", f.var_names.join(", "));
                fail(Kind::EmitForwardType, message)
            }
            None => Ok(()),
        }
    }
}

fn generated(context: &Context<'_>, outputs: &[DifferentiableOutput]) -> Check<GeneratedWrapper> {
    let required = context.requires_derivative(outputs);
    context.check(required, outputs)?;
    let Context { info, in_place, is_out, .. } = *context;
    let forward_ad = match (is_out, required) {
        (true, _) => ForwardAd::Forbidden,
        (false, false) => ForwardAd::None,
        _ if !context.forward.is_empty() => ForwardAd::Formula,
        _ if !in_place && !context.func.func.returns.is_empty() => ForwardAd::Decomposition,
        _ => ForwardAd::Forbidden,
    };
    let saving = info.filter(|info| required && !is_out && info.has_derivatives());
    let saves = saving.map_or(Ok(Vec::new()), |info| saves(context, info))?;
    context.check_view()?;
    if forward_ad == ForwardAd::Formula {
        context.check_forward_types()?;
    }
    let saves_self = saving.is_some_and(|info| {
        info.all_saved_inputs.iter().any(|saved| saved.name == "self" && is_saved_variable(&saved.ty, false))
    });
    let names = |inputs: &[Input<'_>]| inputs.iter().map(|input| input.name.to_owned()).collect::<Vec<_>>();
    let output_names = || outputs.iter().map(|output| output.name.clone()).collect();
    let foreach_name = |name: String| context.foreach_argument(&name).map_or(name, |a| a.name.clone());
    let without_formula = |name: &String| {
        name != "output" && !context.with_derivatives.iter().any(|with_formula| with_formula.name == name)
    };
    let condition = info.and_then(|info| info.output_differentiability_conditions.as_ref());
    Ok(GeneratedWrapper {
        forward_ad,
        history: match (required, (in_place || is_out) && !context.is_view()) {
            (false, _) => History::None,
            (true, true) => History::Rebase,
            (true, false) => History::Set,
        },
        check_inplace: if required && in_place { output_names() } else { Vec::new() },
        requires_grad_of: if required {
            names(&context.with_derivatives).into_iter().map(foreach_name).collect()
        } else {
            Vec::new()
        },
        extra_condition: condition.filter(|_| required).and_then(|list| list.first().cloned()),
        must_not_require_grad: if required && !is_out {
            names(&context.inputs).into_iter().filter(without_formula).collect()
        } else {
            Vec::new()
        },
        clone_self_for_forward: in_place && required && context.forward.iter().any(|f| f.required_original_self_value),
        clone_self_for_save: in_place && saves_self,
        saves,
        out_checks: if required && is_out { vec![context.func.func.base().to_owned(); 2] } else { Vec::new() },
        resets_accumulator: names::contains(names::RESETS_ACCUMULATOR, &context.func.func.name.name.to_string()),
    })
}
