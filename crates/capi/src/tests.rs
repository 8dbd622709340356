//! Mistakes of C callers are errors with a message, and memory that C need not initialize is only written.
#![allow(clippy::unwrap_used)] // a test that cannot go on should stop

use crate::adapters::*;
use crate::boundary::{ErrorKind, borrow, fb_last_error, fb_last_error_kind, put};
use crate::optimizer::*;
use crate::program::*;
use crate::settings::*;
use crate::tensor::*;
use crate::training::*;
use firebrand::Tensor;
use std::ffi::{CStr, CString, c_char, c_void};
use std::mem::MaybeUninit;
use std::ptr::{null, null_mut};

const F32: i32 = 8;

fn last_error() -> String {
    // SAFETY: the message of this thread is text that ends with a zero byte, and no call comes between.
    unsafe { CStr::from_ptr(fb_last_error()) }.to_str().unwrap().to_string()
}

/// A pointer one byte beside where a `T` may lie. It is never followed.
fn beside<T>() -> *mut T {
    std::ptr::without_provenance_mut(align_of::<T>() + 1)
}

fn tensor(values: &[f32]) -> *mut Tensor {
    let sizes = [values.len() as i64];
    // SAFETY: sizes and elements are as many as is said.
    unsafe { fb_tensor_new(F32, sizes.as_ptr(), 1, values.as_ptr().cast()) }
}

fn program() -> *mut Program {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../golden/programs/mlp/model.pt2");
    let path = CString::new(path).unwrap();
    // SAFETY: a path that ends with a zero byte.
    unsafe { fb_program_load(path.as_ptr()) }
}

/// Every pointer of every function, objects and places for answers included, may be null or misaligned.
#[test]
fn wrong_pointers_are_refused() {
    let good = tensor(&[1.0, 2.0]);
    let model = program();
    assert!(!good.is_null() && !model.is_null());
    let (name, sizes, data) = (c"0.weight".as_ptr(), [2i64], [1.0f32, 2.0]);
    let mut out = [0.0f32; 2];
    let mut outputs = [null_mut::<Tensor>(); 1];
    let inputs = [good.cast_const()];
    for (wrong, reason) in [(false, "is null"), (true, "is not aligned")] {
        let t = if wrong { beside::<Tensor>() } else { null_mut() };
        let p = if wrong { beside::<Program>() } else { null_mut() };
        let o = if wrong { beside::<COptimizer>() } else { null_mut() };
        let i64s = if wrong { beside::<i64>() } else { null_mut() };
        let f32s = if wrong { beside::<f32>() } else { null_mut() };
        let list = if wrong { beside::<*const Tensor>() } else { null_mut() };
        let room = if wrong { beside::<*mut Tensor>() } else { null_mut() };
        let bad_inputs = [t.cast_const()];
        let options = if wrong { beside::<COptimizerOptions>() } else { null_mut() };
        let fit = if wrong { beside::<FitOptions>() } else { null_mut() };
        let lora = if wrong { beside::<CLoraOptions>() } else { null_mut() };
        let bytes = if wrong { beside::<*mut u8>() } else { null_mut() };
        let mut k = 0;
        let mut refused = |failed: bool| {
            assert!(failed && last_error().contains(reason), "case {k}, {reason}: {}", last_error());
            k += 1;
        };
        // SAFETY: what is not null or misaligned, and so refused before it is followed, is what the functions ask for.
        unsafe {
            refused(fb_tensor_new(F32, i64s, 1, data.as_ptr().cast()).is_null());
            refused(fb_tensor_new(F32, sizes.as_ptr(), 1, f32s.cast::<c_void>()).is_null());
            refused(fb_tensor_dtype(t) == -1);
            refused(fb_tensor_ndim(t) == 0);
            refused(fb_tensor_size(t, 0) == -1);
            refused(fb_tensor_numel(t) == 0);
            refused(fb_tensor_copy(t, out.as_mut_ptr().cast(), 2) == -1);
            refused(fb_tensor_copy(good, f32s.cast(), 2) == -1);
            refused(fb_program_input_count(p) == 0);
            refused(fb_program_input_name(p, 0).is_null());
            refused(fb_program_input_dtype(p, 0) == -1);
            refused(fb_program_input_sizes(p, 0, null_mut(), 0) == -1);
            refused(fb_program_train(p, 1) == -1);
            refused(fb_program_save(p, c"/tmp/x".as_ptr()) == -1);
            refused(fb_program_run(p, inputs.as_ptr(), 1, outputs.as_mut_ptr(), 1, null_mut()) == -1);
            refused(fb_program_run(model, list, 1, outputs.as_mut_ptr(), 1, null_mut()) == -1);
            refused(fb_program_run(model, bad_inputs.as_ptr(), 1, outputs.as_mut_ptr(), 1, null_mut()) == -1);
            refused(fb_loss(0, t, good).is_null());
            refused(fb_loss(0, good, t).is_null());
            refused(fb_backward(t) == -1);
            refused(fb_program_parameter_count(p) == 0);
            refused(fb_program_parameter_name(p, 0).is_null());
            refused(fb_program_parameter(p, name).is_null());
            refused(fb_program_gradient(p, name).is_null());
            refused(fb_optimizer_new(p, 0, 0.1).is_null());
            refused(fb_optimizer_step(o) == -1);
            refused(fb_optimizer_zero_grad(o) == -1);
            refused(fb_optimizer_lr(o).is_nan());
            refused(fb_optimizer_set_lr(o, 0.1) == -1);
            refused(fb_optimizer_options_init(options, 0) == -1);
            refused(fb_optimizer_new_with(model, 0, options).is_null());
            refused(fb_fit_options_init(fit) == -1);
            refused(fb_fit(p, o, 0, inputs.as_ptr(), 1, good, fit, None, null_mut()) == -1);
            refused(fb_clip_grad_norm(p, 1.0, null_mut()) == -1);
            refused(fb_lora_options_init(lora) == -1);
            refused(fb_program_lora(model, lora).is_null());
            refused(fb_program_load_adapter(p, c"/tmp".as_ptr()).is_null());
            refused(fb_program_save_adapter(p, c"/tmp".as_ptr()) == -1);
            refused(fb_program_merge_lora(p).is_null());
            refused(fb_program_output_count(p) == 0);
            refused(fb_program_output_name(p, 0).is_null());
            refused(fb_program_save_bytes(p, null_mut(), null_mut()) == -1);
            refused(fb_program_save_bytes(model, bytes, null_mut()) == -1);
            if !wrong {
                refused(fb_program_load_bytes(null(), 8).is_null());
            }
            let batch = fb_tensor_new(F32, [4i64, 6].as_ptr(), 2, [0.5f32; 24].as_ptr().cast());
            let batch = [batch.cast_const()];
            refused(fb_program_run(model, batch.as_ptr(), 1, room, 1, null_mut()) == -1);
            fb_tensor_free(batch[0].cast_mut());
        }
    }
    // Null where it means "not needed" is fine; misaligned is not.
    // SAFETY: misaligned pointers are refused before they are followed.
    unsafe {
        assert!(put(null_mut::<usize>(), 3, "count").is_ok());
        assert!(put(beside::<usize>(), 3, "count").is_err());
        assert!(borrow(beside::<u64>().cast_const(), "it").is_err());
        assert_eq!(fb_program_input_sizes(model, 0, beside::<i64>(), 1), -1);
        fb_tensor_free(beside::<Tensor>());
        assert!(last_error().contains("not aligned"));
        assert!(fb_program_load(null::<c_char>()).is_null());
        fb_tensor_free(good);
        fb_program_free(model);
    }
}

/// Memory for answers comes from C as `malloc` gave it.
#[test]
fn answers_go_to_uninitialised_memory() {
    let model = program();
    let mut sizes = [const { MaybeUninit::<i64>::uninit() }; 4];
    let mut outputs = [const { MaybeUninit::<*mut Tensor>::uninit() }; 3];
    let mut count = MaybeUninit::<usize>::uninit();
    let mut values = [const { MaybeUninit::<f32>::uninit() }; 4 * 5];
    // SAFETY: pointers and counts are those of the arrays above, and only what was written is read.
    unsafe {
        assert_eq!(fb_program_input_sizes(model, 0, sizes.as_mut_ptr().cast(), 4), 2);
        assert_eq!([sizes[0].assume_init(), sizes[1].assume_init()], [4, 6]);
        let batch = fb_tensor_new(F32, [4i64, 6].as_ptr(), 2, [0.5f32; 24].as_ptr().cast());
        let inputs = [batch.cast_const()];
        let run = fb_program_run(model, inputs.as_ptr(), 1, outputs.as_mut_ptr().cast(), 3, count.as_mut_ptr());
        assert_eq!((run, count.assume_init()), (0, 1), "{}", last_error());
        let result = outputs[0].assume_init();
        assert_eq!(fb_tensor_copy(result, values.as_mut_ptr().cast(), fb_tensor_numel(result)), 0, "{}", last_error());
        assert!(values[..fb_tensor_numel(result)].iter().all(|v| v.assume_init().is_finite()));
        fb_tensor_free(result);
        fb_tensor_free(batch);
        fb_program_free(model);
    }
}

/// Every failure has the kind that the header promises.
#[test]
fn failures_have_kinds() {
    let kind = || fb_last_error_kind();
    let model = program();
    // SAFETY: pointers and counts are those of what is beside them.
    unsafe {
        assert!(fb_program_load(c"no such file.pt2".as_ptr()).is_null());
        assert_eq!(kind(), ErrorKind::File as i32, "{}", last_error());
        assert!(fb_program_load_bytes(b"no program".as_ptr().cast(), 10).is_null());
        assert_eq!(kind(), ErrorKind::Format as i32, "{}", last_error());
        assert!(fb_tensor_new(99, null(), 0, null()).is_null());
        assert_eq!(kind(), ErrorKind::Argument as i32, "{}", last_error());
        assert!(fb_tensor_new(F32, [1i64 << 55].as_ptr(), 1, null()).is_null());
        assert!(fb_program_run(model, null(), 0, null_mut(), 0, null_mut()) == -1);
        assert_eq!(kind(), ErrorKind::Argument as i32, "{}", last_error());
        let (a, b) = (tensor(&[1.0, 2.0]), tensor(&[1.0, 2.0, 3.0]));
        assert!(fb_loss(0, a, b).is_null());
        assert_eq!(kind(), ErrorKind::Run as i32, "{}", last_error());
        assert!(fb_program_merge_lora(model).is_null());
        assert_eq!(kind(), ErrorKind::Argument as i32, "{}", last_error());
        fb_tensor_free(a);
        fb_tensor_free(b);
        fb_program_free(model);
    }
}

/// The numbers that C sees: in the header, in the library and in its name.
#[test]
fn versions_agree() {
    let header = include_str!("../include/firebrand.h");
    assert!(header.contains(&format!("#define FB_ABI_VERSION {ABI_VERSION}\n")));
    assert!(include_str!("../build.rs").contains(&format!("(version, os) = ({ABI_VERSION}, ")));
    assert_eq!(fb_abi_version(), ABI_VERSION);
    // SAFETY: text that ends with a zero byte.
    assert_eq!(unsafe { CStr::from_ptr(fb_version()) }.to_str(), Ok(env!("CARGO_PKG_VERSION")));
}

/// Every function of the library is in the header, and the other way round.
#[test]
fn the_header_is_complete() {
    let header = include_str!("../include/firebrand.h");
    let sources = [
        include_str!("adapters.rs"),
        include_str!("boundary.rs"),
        include_str!("optimizer.rs"),
        include_str!("program.rs"),
        include_str!("settings.rs"),
        include_str!("tensor.rs"),
        include_str!("training.rs"),
    ];
    let exported = |text: &str| -> Vec<String> {
        let name = |line: &str| Some(line.split_once("extern \"C\" fn ")?.1.split_once('(')?.0.to_string());
        text.lines().filter_map(name).collect()
    };
    let ours: std::collections::BTreeSet<String> = sources.iter().flat_map(|s| exported(s)).collect();
    let code: String = header.split("/*").map(|part| part.split_once("*/").map_or("", |(_, rest)| rest)).collect();
    let words = code.split(|c: char| !c.is_alphanumeric() && c != '_');
    let theirs: std::collections::BTreeSet<String> =
        words.filter(|w| w.starts_with("fb_") && code.contains(&format!("{w}("))).map(str::to_string).collect();
    assert_eq!(ours, theirs);
}

/// The comment above every function says in brackets which threads may call it.
#[test]
fn the_header_says_which_threads_may_call() {
    let header = include_str!("../include/firebrand.h");
    let mut functions = 0;
    for part in header.split("/*").skip(1) {
        let (comment, code) = part.split_once("*/").unwrap();
        // The functions up to the next comment: one, or the comment is not theirs.
        let here: Vec<&str> =
            code.split(';').filter(|d| d.contains("fb_") && d.contains('(') && !d.contains('}')).collect();
        let here: Vec<&&str> = here.iter().filter(|d| !d.trim_start().starts_with("typedef")).collect();
        functions += here.len();
        let told = comment.rsplit_once('[').is_some_and(|(_, note)| note.contains("any]") || note.contains("object]"));
        assert!(here.len() <= 1 && (here.is_empty() || told), "no note: {here:?}");
    }
    assert!(functions > 40, "{functions} functions were found");
}

/// A family of ops that the build was made without refuses by name, and says which feature has it; the others are there.
#[test]
fn a_family_that_is_left_out_refuses_by_name() {
    use firebrand::ops;
    let one = Tensor::from_slice(&[4.0f32], [1, 1]);
    let families = [
        ("decompositions", cfg!(feature = "decompositions"), "linalg_det", ops::linalg_det(&one).map(drop)),
        ("fft", cfg!(feature = "fft"), "fft_fft", ops::fft_fft(&one, None, -1, None).map(drop)),
        ("special", cfg!(feature = "special"), "special_bessel_j0", ops::special_bessel_j0(&one).map(drop)),
        (
            "decompositions",
            cfg!(feature = "decompositions"),
            "det",
            ops::det(&one.to_device(firebrand::Device::Meta)).map(drop),
        ),
    ];
    for (feature, present, op, result) in families {
        match result {
            Ok(()) => assert!(present, "{op} without {feature}"),
            Err(e) => {
                let text = e.to_string();
                assert!(!present && text.contains(op) && text.contains(feature), "{op} with {feature}: {text}");
            }
        }
    }
}
