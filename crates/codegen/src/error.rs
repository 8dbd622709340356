//! The one error type of the generator: a stage, a kind that tools compare, a message for people.
//!
//! Kinds are stable names. The first problem in processing order is the one reported, so equal input
//! gives equal errors.

use std::fmt;

/// Where in the pipeline an error arose.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub enum Stage {
    /// Reading and checking operator declarations.
    Native,
    /// Reading derivative entries.
    Derivatives,
    /// Finding the info of every function.
    Match,
    /// Computing differentiable outputs.
    Outputs,
    /// Planning nodes and wrappers.
    Emit,
}

impl Stage {
    /// The stage as printed in dumps.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Native => "native",
            Self::Derivatives => "derivatives",
            Self::Match => "match",
            Self::Outputs => "outputs",
            Self::Emit => "emit",
        }
    }
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Declares [`Kind`] together with its printed names.
macro_rules! kinds {
    ($($variant:ident $name:literal $doc:literal)*) => {
        /// What went wrong.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
        pub enum Kind { $(#[doc = $doc] $variant,)* }

        impl Kind {
            /// Every kind.
            pub const ALL: &[Kind] = &[$(Kind::$variant,)*];

            /// The kind as printed in dumps.
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }
        }
    };
}

kinds! {
    YamlSyntax "yaml_syntax" "The text is not YAML, or uses a part of YAML that is not supported."
    YamlShape "yaml_shape" "A YAML value has the wrong shape."
    YamlDuplicateKey "yaml_duplicate_key" "A mapping repeats a key."

    SchemaSyntax "schema_syntax" "No `name(args) -> returns` shape."
    Roundtrip "roundtrip" "Printing gives other text."
    ArgNoSpace "arg_no_space" "An argument without a space between type and name."
    ArgTwoEquals "arg_two_equals" "An argument with more than one `=`."
    TypeUnknown "type_unknown" "An unknown type."
    BoolListNeedsSize "bool_list_needs_size" "A list of booleans without a size."
    AliasSyntax "alias_syntax" "An annotation that cannot be read."
    AliasMutableSet "alias_mutable_set" "A mutable set of several letters."
    AliasBothSets "alias_both_sets" "Several letters on both sides of the arrow."
    AliasPosition "alias_position" "An annotation in a place where none may be."
    StarTwice "star_twice" "More than one `*`."
    ArgAfterOut "arg_after_out" "An immutable argument after an out argument."
    MutableBeforeSelf "mutable_before_self" "A mutable argument before self."
    NameOutSuffix "name_out_suffix" "A base name ending in `_out`."
    NameDunderI "name_dunder_i" "An unknown in-place dunder."
    NameFunctionalSuffix "name_functional_suffix" "`_functional` on an in-place or dunder name."
    NameEmpty "name_empty" "An empty operator name."
    OutAliasMismatch "out_alias_mismatch" "An out argument and its return differ in annotation."
    MutableArgReturned "mutable_arg_returned" "A mutable positional argument is returned."
    ReturnsMixedMutability "returns_mixed_mutability" "Some returns are mutable, some are not."
    ReturnAliasUnbound "return_alias_unbound" "A mutable return that is not an argument."
    OutListReturns "out_list_returns" "An out list with returns."
    OutReturnCount "out_return_count" "Not as many returns as out arguments."
    InplaceSelfNotMutable "inplace_self_not_mutable" "In-place without a mutable self."
    InplaceMustReturnSelf "inplace_must_return_self" "In-place on a tensor that does not return self."
    InplaceListReturns "inplace_list_returns" "In-place on a list that returns something."
    OptionsNotFunctional "options_not_functional" "Tensor options on an operator that is not functional."
    OverloadSaysFunctional "overload_says_functional" "An overload that says functional on one that is not."
    OutAndInplace "out_and_inplace" "Both out and in-place."

    VariantUnknown "variant_unknown" "An unknown variant."
    OutVariantMethod "out_variant_method" "An out operator with a method variant."
    ModuleMethod "module_method" "A method variant of an operator in a Python module."
    TagUnknown "tag_unknown" "An unknown tag."
    FieldUnknown "field_unknown" "An unknown field."
    FieldValue "field_value" "A field with a value that makes no sense."
    TagSeededMissing "tag_seeded_missing" "A random operator without its tag."
    ForeachDeviceCheck "foreach_device_check" "A foreach operator without `device_check: NoCheck`."
    ArgReservedWord "arg_reserved_word" "An argument named like a Python keyword."
    DispatchKeyUnknown "dispatch_key_unknown" "An unknown dispatch key."
    DispatchKeyUnsupported "dispatch_key_unsupported" "A dispatch key that declarations may not use."
    DispatchRedundant "dispatch_redundant" "A dispatch section that says what is true without it."
    DispatchSingletonName "dispatch_singleton_name" "A lone implicit composite kernel of another name."
    DispatchTwoComposites "dispatch_two_composites" "More than one composite key."
    DispatchManual "dispatch_manual" "A dispatch section on a manually registered operator."
    FactoryNeedsDispatch "factory_needs_dispatch" "A factory without a dispatch section."
    DelegateBad "delegate_bad" "A structured delegate that does not exist or is not structured."
    StructuredNotOut "structured_not_out" "`structured` on an operator that is not an out operator."
    DelegateOnOut "delegate_on_out" "`structured_delegate` on an out operator."
    DelegateHasKernel "delegate_has_kernel" "A delegating operator with a kernel of its own."
    DuplicateVariant "duplicate_variant" "Two variants of one kind with one signature."
    DuplicateOperator "duplicate_operator" "Two declarations of one operator name."
    OutWithoutBase "out_without_base" "An out operator alone in its group."
    NoOutVariant "no_out_variant" "An operator for which no out variant can be made."
    InplaceViewBad "inplace_view_bad" "The tag `inplace_view` where it may not be."

    InplaceViewTagMissing "inplace_view_tag_missing" "An in-place view without its tag."
    ViewCopyMissing "view_copy_missing" "A view without its copy."
    ViewCopyName "view_copy_name" "A copy of a view that is not called one."
    ViewCopyTagMissing "view_copy_tag_missing" "A view copy without its tag."
    ViewCopySignature "view_copy_signature" "A view and its copy differ in signature."
    ViewCompositeMismatch "view_composite_mismatch" "A view and its in-place form differ in being composite."
    DuplicateSchema "duplicate_schema" "One schema text declared twice."
    EntryNoName "entry_no_name" "An entry without a name."
    EntryNameSyntax "entry_name_syntax" "An entry name that is not a schema."
    EntrySchemaUnknown "entry_schema_unknown" "An entry for an operator that is not declared."
    EntryNoCanonical "entry_no_canonical" "An entry for which no canonical function exists."
    EntryDispatchKey "entry_dispatch_key" "An unknown autograd key."
    ArgNamedGradInputMask "arg_named_grad_input_mask" "An argument called `grad_input_mask`."
    ArgNamedResult "arg_named_result" "An argument called `result`."
    NameInputAndReturn "name_input_and_return" "A name that is both an argument and a return."
    ConditionMultiOutput "condition_multi_output" "A condition on an operator with several outputs."
    NondiffOverlap "nondiff_overlap" "A name that is differentiable and is not."
    FormulaNotString "formula_not_string" "A formula or entry that is not text."
    FormulaSyntax "formula_syntax" "A Rust formula that does not parse."
    FormulaSizes "formula_sizes" "`.sizes()` in a formula."
    FormulaSizeInt "formula_size_int" "`.size(N)` in a formula."
    FormulaStrides "formula_strides" "`.strides()` in a formula."
    FormulaStridesScope "formula_strides_scope" "Strides of something else than the differentiated argument."
    GradsOutOfBounds "grads_out_of_bounds" "`grads[i]` with no i-th return."
    GradsCount "grads_count" "Fewer mentions of `grads` than indexed ones."
    GradAndGrads "grad_and_grads" "`grad` and `grads` in one entry."
    Grads0Only "grads0_only" "Only `grads[0]`, which is `grad`."
    NamedAndPlainGrads "named_and_plain_grads" "Named gradients together with `grad` or `grads`."
    FwResultMultiReturn "fw_result_multi_return" "`result` on an operator that does not return one value."
    FwNoOutput "fw_no_output" "A forward key that names no output."
    FwResultIndex "fw_result_index" "`result<i>` with no i-th return."
    FwBaseName "fw_base_name" "A forward formula with a bare differentiable argument."
    AutoElemInplace "auto_elem_inplace" "`auto_element_wise` on an in-place operator."
    AutoElemArity "auto_elem_arity" "`auto_element_wise` with more than one input or output."
    AutoElemNoBackward "auto_elem_no_backward" "`auto_element_wise` without one backward formula."
    AutoLinearOutputs "auto_linear_outputs" "`auto_linear` with more than one output."
    AutoLinearNoInput "auto_linear_no_input" "`auto_linear` without a differentiable argument."

    MutableFormulaSelf "mutable_formula_self" "A generated functional variant whose formula saves self."
    InplaceStrides "inplace_strides" "Strides of self in the formula of an in-place operator."
    InplaceManyForward "inplace_many_forward" "Not one forward formula on an in-place operator."
    InplaceSelfPrimal "inplace_self_primal" "An in-place formula that uses self before it changed."
    ForeachSavedOutput "foreach_saved_output" "A foreach reference that saves something of its result."
    ForeachTensorArg "foreach_tensor_arg" "A plain tensor argument of a foreach operator."
    ForeachNoDefaultKey "foreach_no_default_key" "A foreach reference without default formulas."
    ForeachUnmappedArg "foreach_unmapped_arg" "A saved value that is not an argument of the foreach operator."

    OutdiffLength "outdiff_length" "`output_differentiability` of the wrong length."
    OutdiffInplace "outdiff_inplace" "An in-place output that is not differentiable."
    ReturnSizedList "return_sized_list" "A sized list as return."

    EmitBorrowedField "emit_borrowed_field" "A saved value that does not own its memory."
    EmitListResult "emit_list_result" "A saved list output on an operator that is not foreach."
    EmitUnknownVar "emit_unknown_var" "A backward key with a name that is not an argument."
    EmitMissingArgs "emit_missing_args" "A differentiated argument that the function does not take."
    EmitDerivativeIgnored "emit_derivative_ignored" "A derivative that could never be used."
    EmitForwardCount "emit_forward_count" "Not as many forward formulas as differentiable outputs."
    EmitForwardType "emit_forward_type" "A forward formula for an output of an unsupported type."
    EmitNeedsDispatch "emit_needs_dispatch" "A formula on an operator without a dispatch section."
    EmitNoTangent "emit_no_tangent" "A forward formula that uses no tangent."
    EmitForeachNoInfo "emit_foreach_no_info" "An in-place foreach operator without a reference."
    EmitForeachArity "emit_foreach_arity" "A foreach operator and its reference differ in arity."
    EmitViewOutputs "emit_view_outputs" "A view with several differentiable outputs."
    EmitWrapOptIf "emit_wrap_opt_if" "`wrap_opt_if(x` without a comma at once."

    DefaultUnsupported "default_unsupported" "A default that has no spelling in the target language."
    TranslateUnsatisfied "translate_unsatisfied" "No expression for a goal from what is in scope."
    StructuredOptions "structured_options" "Tensor options on a structured kernel."
    ReturnUnsupported "return_unsupported" "A return type that has no spelling in the target language."
    UfuncUnsupported "ufunc_unsupported" "An operator that cannot be a ufunc."
    ViewArgument "view_argument" "A view whose first argument is not a tensor."

    LostGradient "lost_gradient" "An operator that could lose a gradient silently."
    CompositeDerivative "composite_derivative" "A derivative for an operator that is built of others or written by hand."
    RecordIncomplete "record_incomplete" "An operator whose record would have a gap."
    ImplementationUnclear "implementation_unclear" "Not exactly one implementation of an operator."
    DuplicateRustName "duplicate_rust_name" "Two operators with one Rust name."
    DuplicateNode "duplicate_node" "Two derivatives with one node name."
    FormulaUnknownName "formula_unknown_name" "A formula with a name that means nothing there."
    FormulaCall "formula_call" "A formula that calls an operator with wrong arguments."
    FormulaMacro "formula_macro" "A macro in a formula."
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A problem found by code that does not know in which stage it runs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refusal {
    /// Why, for tools.
    pub kind: Kind,
    /// Why, for people.
    pub message: String,
    /// The line, where it is another than that of the whole entry.
    pub line: Option<usize>,
}

impl Refusal {
    /// A refusal.
    pub fn new(kind: Kind, message: impl Into<String>) -> Self {
        Refusal { kind, message: message.into(), line: None }
    }

    /// Adds the line, keeping one that is known already.
    pub fn on(mut self, line: usize) -> Self {
        self.line.get_or_insert(line);
        self
    }

    /// The error this is in a given stage.
    pub fn at_stage(self, stage: Stage) -> CodegenError {
        CodegenError { line: self.line, ..CodegenError::new(stage, self.kind, self.message) }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Refusal {}

/// A refused input.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CodegenError {
    /// The stage that refused it.
    pub stage: Stage,
    /// Why, for tools.
    pub kind: Kind,
    /// Why, for people.
    pub message: String,
    /// Which of the two files, as the caller knows it.
    pub file: Option<String>,
    /// The line in that file, from 1.
    pub line: Option<usize>,
    /// The operator or entry concerned.
    pub entry: Option<String>,
}

/// What every stage returns.
pub type Result<T, E = CodegenError> = std::result::Result<T, E>;

impl CodegenError {
    /// An error without a place.
    pub fn new(stage: Stage, kind: Kind, message: impl Into<String>) -> Self {
        CodegenError { stage, kind, message: message.into(), file: None, line: None, entry: None }
    }

    /// Adds the place, keeping what is known already.
    pub fn at(mut self, line: usize, entry: &str) -> Self {
        self.line.get_or_insert(line);
        self.entry.get_or_insert_with(|| entry.to_owned());
        self
    }

    /// Adds the file name, keeping what is known already.
    pub fn in_file(mut self, file: &str) -> Self {
        self.file.get_or_insert_with(|| file.to_owned());
        self
    }

    /// Puts the paths that people know in the place of the roles that stages know.
    pub fn with_files(mut self, native: &str, derivatives: &str) -> Self {
        match self.file.as_deref() {
            Some(crate::NATIVE_FILE) => self.file = Some(native.to_owned()),
            Some(crate::DERIVATIVES_FILE) => self.file = Some(derivatives.to_owned()),
            _ => {}
        }
        self
    }
}

impl fmt::Display for CodegenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(file) = &self.file {
            write!(f, "{file}:")?;
        }
        if let Some(line) = self.line {
            write!(f, "{line}:")?;
        }
        if self.file.is_some() || self.line.is_some() {
            f.write_str(" ")?;
        }
        write!(f, "{} ({}/{})", self.message, self.stage, self.kind)?;
        match &self.entry {
            Some(entry) => write!(f, "\n  in {entry}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for CodegenError {}
