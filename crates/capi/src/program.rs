//! Programs across the boundary: loaded, described, run, saved.

use crate::boundary::{Answer, Refusal, array, array_out, borrow, free, guard, object, put, status, text};
use crate::tensor::dtype_code;
use firebrand::Tensor;
use firebrand::graph::interpret::Value;
use firebrand::graph::ir::TensorMeta;
use firebrand::graph::{ExportedProgram, ProgramModule};
use firebrand::prelude::Module;
use std::ffi::{CString, c_char, c_void};

/// A program with its own state.
pub struct Program {
    pub(crate) module: ProgramModule,
    /// Names of inputs, tensor outputs and parameters, as C strings.
    inputs: Vec<CString>,
    outputs: Vec<CString>,
    parameters: Vec<CString>,
}

firebrand::opaque_debug! { [] Program => "Program"; }

fn c_names<'a>(names: impl Iterator<Item = &'a str>) -> Answer<Vec<CString>> {
    Ok(names.map(CString::new).collect::<Result<_, _>>()?)
}

impl Program {
    pub(crate) fn new(program: &ExportedProgram) -> Answer<Program> {
        let module = program.module()?;
        let inputs = c_names(module.tensor_inputs()?.into_iter().map(|(name, _)| name))?;
        let outputs = module.output_names();
        let tensors = outputs.iter().enumerate().filter(|(k, _)| module.output_meta(*k).is_some());
        let outputs = c_names(tensors.map(|(_, name)| name.as_str()))?;
        let parameters = module.named_parameters();
        let parameters = c_names(parameters.iter().map(|(name, _)| name.as_str()))?;
        Ok(Program { module, inputs, outputs, parameters })
    }

    /// Its tensor results on these inputs.
    pub(crate) fn results(&self, inputs: &[Tensor]) -> Answer<Vec<Tensor>> {
        let results = self.module.run(inputs)?.into_iter();
        Ok(results.filter_map(|v| if let Value::Tensor(t) = v { Some(t) } else { None }).collect())
    }

    fn input(&self, index: usize) -> Answer<(&str, &TensorMeta)> {
        let inputs = self.module.tensor_inputs()?;
        let missing = || Refusal::because(format!("no input {index}: the program has {}", inputs.len()));
        inputs.get(index).copied().ok_or_else(missing)
    }

    fn parameter(&self, name: &str) -> Answer<Tensor> {
        let found = self.module.named_parameters().into_iter().find(|(n, _)| n == name);
        let (_, p) = found.ok_or_else(|| Refusal::because(format!("the program has no parameter {name}")))?;
        Ok(p.tensor().clone())
    }
}

/// Loads a `.pt2` file; null if it cannot be read or calls ops this build does not have.
///
/// # Safety
/// `path` is null or text that ends with a zero byte.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fb_program_load(path: *const c_char) -> *mut Program {
    object(|| {
        // SAFETY: the caller's promise is the same.
        let path = unsafe { text(path, "path") }?;
        Program::new(&ExportedProgram::load(path)?)
    })
}

/// Loads the content of a `.pt2` file, which is copied.
///
/// # Safety
/// `bytes` is null or holds `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fb_program_load_bytes(bytes: *const c_void, size: usize) -> *mut Program {
    object(|| {
        // SAFETY: the caller's promise is the same.
        let bytes = unsafe { array(bytes.cast::<u8>(), size, "bytes") }?;
        Program::new(&ExportedProgram::from_bytes(bytes)?)
    })
}

/// Frees a program; null is ignored.
///
/// # Safety
/// `program` is null, or came from this library and was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fb_program_free(program: *mut Program) {
    // SAFETY: the caller's promise is the same.
    unsafe { free(program) }
}

/// Writes the program with its current state, atomically.
///
/// # Safety
/// `program` is null or a program of this library, `path` null or text that ends with a zero byte.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fb_program_save(program: *const Program, path: *const c_char) -> i32 {
    status(|| {
        // SAFETY: the caller's promise is the same.
        let (program, path) = unsafe { (borrow(program, "program")?, text(path, "path")?) };
        Ok(program.module.program().save(path)?)
    })
}

/// The program with its current state as the content of a `.pt2` file: `size` bytes at `bytes`, to be freed by
/// [`fb_bytes_free`].
///
/// # Safety
/// `program` is null or a program of this library; `bytes` and `size` are null or have room for a pointer and a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fb_program_save_bytes(program: *const Program, bytes: *mut *mut u8, size: *mut usize) -> i32 {
    status(|| {
        // SAFETY: the caller's promise is the same.
        let program = unsafe { borrow(program, "program") }?;
        // SAFETY: both are null or memory for one value, says the caller.
        let (to, length) = unsafe { (array_out(bytes, 1, "bytes")?, array_out(size, 1, "size")?) };
        let content = program.module.program().to_bytes()?.into_boxed_slice();
        length[0].write(content.len());
        to[0].write(Box::into_raw(content).cast::<u8>());
        Ok(())
    })
}

/// Frees what [`fb_program_save_bytes`] returned; null is ignored.
///
/// # Safety
/// `bytes` is null, or came with this `size` from this library and was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fb_bytes_free(bytes: *mut u8, size: usize) {
    if !bytes.is_null() {
        // SAFETY: it was a boxed slice of this length, says the caller.
        drop(unsafe { Box::from_raw(std::ptr::slice_from_raw_parts_mut(bytes, size)) });
    }
}

/// The number of output tensors.
///
/// # Safety
/// `program` is null or a program of this library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fb_program_output_count(program: *const Program) -> usize {
    // SAFETY: the caller's promise is the same.
    guard(|| Ok(unsafe { borrow(program, "program") }?.outputs.len())).unwrap_or(0)
}

/// The name of an output; null if there is no such output. It lives as long as the program.
///
/// # Safety
/// `program` is null or a program of this library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fb_program_output_name(program: *const Program, index: usize) -> *const c_char {
    let name = guard(|| {
        // SAFETY: the caller's promise is the same.
        let names = &unsafe { borrow(program, "program") }?.outputs;
        let missing = || Refusal::because(format!("no output {index}: the program has {}", names.len()));
        names.get(index).map(|n| n.as_ptr()).ok_or_else(missing)
    });
    name.unwrap_or(std::ptr::null())
}

/// The number of input tensors.
///
/// # Safety
/// `program` is null or a program of this library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fb_program_input_count(program: *const Program) -> usize {
    // SAFETY: the caller's promise is the same.
    guard(|| Ok(unsafe { borrow(program, "program") }?.inputs.len())).unwrap_or(0)
}

/// The name of an input; null if there is no such input. It lives as long as the program.
///
/// # Safety
/// `program` is null or a program of this library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fb_program_input_name(program: *const Program, index: usize) -> *const c_char {
    let name = guard(|| {
        // SAFETY: the caller's promise is the same.
        let program = unsafe { borrow(program, "program") }?;
        program.input(index)?;
        Ok(program.inputs[index].as_ptr())
    });
    name.unwrap_or(std::ptr::null())
}

/// The dtype of an input, as in `fb_dtype`; -1 if there is no such input, or C has no such type.
///
/// # Safety
/// `program` is null or a program of this library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fb_program_input_dtype(program: *const Program, index: usize) -> i32 {
    let code = guard(|| {
        // SAFETY: the caller's promise is the same.
        let (_, meta) = unsafe { borrow(program, "program") }?.input(index)?;
        Ok(meta.dtype.dtype().map_or(-1, dtype_code))
    });
    code.unwrap_or(-1)
}

/// The number of dimensions of an input; `sizes`, unless null, receives the first `capacity` of them, -1 for a dynamic one.
/// -1 if there is no such input.
///
/// # Safety
/// `program` is null or a program of this library; `sizes` is null or has room for `capacity` numbers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fb_program_input_sizes(
    program: *const Program,
    index: usize,
    sizes: *mut i64,
    capacity: usize,
) -> i32 {
    let ndim = guard(|| {
        // SAFETY: the caller's promise is the same.
        let (_, meta) = unsafe { borrow(program, "program") }?.input(index)?;
        if !sizes.is_null() {
            // SAFETY: `sizes` has room for `capacity` numbers, says the caller.
            let out = unsafe { array_out(sizes, capacity, "sizes") }?;
            out.iter_mut().zip(&meta.sizes).for_each(|(o, s)| _ = o.write(s.known().unwrap_or(-1)));
        }
        Ok(meta.sizes.len() as i32)
    });
    ndim.unwrap_or(-1)
}

/// Sets training (1) or evaluation (0) mode.
///
/// # Safety
/// `program` is null or a program of this library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fb_program_train(program: *mut Program, on: i32) -> i32 {
    status(|| {
        // SAFETY: the caller's promise is the same.
        let module = &unsafe { borrow(program, "program") }?.module;
        if on != 0 {
            module.train()
        } else {
            module.eval()
        }
        Ok(())
    })
}

/// Runs the program on `count` tensors in its order, and stores its tensor results in `outputs`: new objects, of which
/// `capacity` fit. `outputs_count`, unless null, receives their number. If they do not fit, none is returned.
///
/// # Safety
/// `program` and every input are null or of this library; `outputs` has room for `capacity` pointers; `outputs_count` is
/// null or has room for a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fb_program_run(
    program: *const Program,
    inputs: *const *const Tensor,
    count: usize,
    outputs: *mut *mut Tensor,
    capacity: usize,
    outputs_count: *mut usize,
) -> i32 {
    status(|| {
        // SAFETY: `program` is null or a program, and `inputs` holds `count` pointers, says the caller.
        let (program, inputs) = unsafe { (borrow(program, "program")?, array(inputs, count, "inputs")?) };
        // SAFETY: each of them is null or a tensor of this library, says the caller.
        let tensors = inputs.iter().map(|&t| unsafe { borrow(t, "an input") }.cloned());
        let results = program.results(&tensors.collect::<Answer<Vec<Tensor>>>()?)?;
        // SAFETY: it is null or memory for a number, says the caller.
        unsafe { put(outputs_count, results.len(), "outputs_count") }?;
        if results.len() > capacity {
            return Err(Refusal::because(format!(
                "the program returned {} tensors, but `outputs` has room for {capacity}",
                results.len()
            )));
        }
        // SAFETY: `outputs` has room for `capacity` pointers, and no more are written, says the check above.
        let out = unsafe { array_out(outputs, results.len(), "outputs") }?;
        out.iter_mut().zip(results).for_each(|(o, t)| _ = o.write(Box::into_raw(Box::new(t))));
        Ok(())
    })
}

/// The number of parameters; several names of one tensor are one parameter.
///
/// # Safety
/// `program` is null or a program of this library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fb_program_parameter_count(program: *const Program) -> usize {
    // SAFETY: the caller's promise is the same.
    guard(|| Ok(unsafe { borrow(program, "program") }?.parameters.len())).unwrap_or(0)
}

/// The name of a parameter; null if there is no such parameter. It lives as long as the program.
///
/// # Safety
/// `program` is null or a program of this library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fb_program_parameter_name(program: *const Program, index: usize) -> *const c_char {
    let name = guard(|| {
        // SAFETY: the caller's promise is the same.
        let names = &unsafe { borrow(program, "program") }?.parameters;
        let missing = || Refusal::because(format!("no parameter {index}: the program has {}", names.len()));
        names.get(index).map(|n| n.as_ptr()).ok_or_else(missing)
    });
    name.unwrap_or(std::ptr::null())
}

/// The value of a parameter: a new tensor over the same memory.
///
/// # Safety
/// `program` is null or a program of this library, `name` null or text that ends with a zero byte.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fb_program_parameter(program: *const Program, name: *const c_char) -> *mut Tensor {
    object(|| {
        // SAFETY: the caller's promise is the same.
        let (program, name) = unsafe { (borrow(program, "program")?, text(name, "name")?) };
        Ok(program.parameter(name)?.try_detach()?)
    })
}

/// The gradient of a parameter; null if it has none.
///
/// # Safety
/// `program` is null or a program of this library, `name` null or text that ends with a zero byte.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fb_program_gradient(program: *const Program, name: *const c_char) -> *mut Tensor {
    object(|| {
        // SAFETY: the caller's promise is the same.
        let (program, name) = unsafe { (borrow(program, "program")?, text(name, "name")?) };
        let gradient = program.parameter(name)?.grad();
        gradient.ok_or_else(|| Refusal::because(format!("parameter {name} has no gradient; call fb_backward first")))
    })
}
