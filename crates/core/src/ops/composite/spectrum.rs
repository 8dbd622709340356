//! Short-time Fourier transforms: frames of a signal under a window, and the signal back from them.

use crate::limits::as_size;
use crate::ops::formulas::sym;
use crate::{Error, Result, Scalar, Tensor, ops};

/// The frames of a transform: their length, the way from one to the next, and the window as long as a frame.
struct Frames {
    size: usize,
    hop: usize,
    window: Option<Tensor>,
}

impl Frames {
    fn new(
        op: &'static str,
        n_fft: i64,
        hop_length: Option<i64>,
        win_length: Option<i64>,
        window: Option<&Tensor>,
    ) -> Result<Frames> {
        let (hop, width) = (hop_length.unwrap_or(n_fft / 4), win_length.unwrap_or(n_fft));
        let wrong = if n_fft <= 0 || hop <= 0 || width <= 0 || width > n_fft {
            format!(
                "expected 0 < hop_length and 0 < win_length <= n_fft, found {hop}, {width} and {n_fft}; each has a default"
            )
        } else if let Some(w) = window.filter(|w| w.shape() != [as_size(width)]) {
            format!("expected a window of {width} values, found shape {:?}", w.shape())
        } else {
            let left = (n_fft - width) / 2;
            let sides = [left.into(), (n_fft - width - left).into()];
            let wide = |w: &Tensor| ops::constant_pad_nd(w, &sides, Scalar::Int(0));
            let window = match window {
                Some(w) if width < n_fft => Some(wide(w)?),
                None if width < n_fft => Some(wide(&ops::ones(&[width.into()], None, None)?)?),
                given => given.cloned(),
            };
            return Ok(Frames { size: as_size(n_fft), hop: as_size(hop), window });
        };
        Err(Error::argument(op, wrong))
    }
}

#[allow(clippy::too_many_arguments)] // the schema's
pub(crate) fn stft(
    signal: &Tensor,
    n_fft: i64,
    hop_length: Option<i64>,
    win_length: Option<i64>,
    window: Option<&Tensor>,
    normalized: bool,
    onesided: Option<bool>,
    return_complex: Option<bool>,
    align_to_window: Option<bool>,
) -> Result<Tensor> {
    const OP: &str = "stft";
    let frames = Frames::new(OP, n_fft, hop_length, win_length, window)?;
    let complex = signal.is_complex() || frames.window.as_ref().is_some_and(Tensor::is_complex);
    let onesided = onesided.unwrap_or(!complex);
    let length = signal.shape().last().copied().unwrap_or(0);
    let wrong = if !matches!(signal.ndim(), 1 | 2) || length < frames.size {
        format!("expected one signal or a batch of them, at least {n_fft} long, found shape {:?}", signal.shape())
    } else if onesided && complex {
        "one side of the spectrum of a complex signal is not all of it; give onesided=false".to_string()
    } else if align_to_window == Some(true) && frames.size != as_size(win_length.unwrap_or(n_fft)) {
        "frames aligned to a shorter window are not supported".to_string()
    } else if return_complex.is_none() && !complex {
        "return_complex must be given for a real signal".to_string()
    } else {
        let pieces = ops::unfold(signal, -1, n_fft, frames.hop as i64)?;
        let pieces = match &frames.window {
            Some(w) => ops::mul(&pieces, w)?,
            None => pieces,
        };
        let norm = normalized.then_some("ortho");
        let spectrum = match onesided {
            true => ops::fft_rfft(&pieces, None, -1, norm)?,
            false => ops::fft_fft(&pieces, None, -1, norm)?,
        };
        let spectrum = ops::transpose(&spectrum, -1, -2)?;
        return if return_complex == Some(false) { ops::view_as_real(&spectrum) } else { Ok(spectrum) };
    };
    Err(Error::argument(OP, wrong))
}

/// With frames centered on their times: the signal is extended beyond its ends by `pad_mode`.
#[allow(clippy::too_many_arguments)] // the schema's
pub(crate) fn stft_center(
    signal: &Tensor,
    n_fft: i64,
    hop_length: Option<i64>,
    win_length: Option<i64>,
    window: Option<&Tensor>,
    center: bool,
    pad_mode: &str,
    normalized: bool,
    onesided: Option<bool>,
    return_complex: Option<bool>,
    align_to_window: Option<bool>,
) -> Result<Tensor> {
    let widened = if center && matches!(signal.ndim(), 1 | 2) {
        let side = [(n_fft / 2).into(), (n_fft / 2).into()];
        // Padding by reflection wants a batch and channels.
        let lifted = if signal.ndim() == 1 {
            ops::unsqueeze(&ops::unsqueeze(signal, 0)?, 0)?
        } else {
            ops::unsqueeze(signal, 0)?
        };
        let padded = ops::squeeze_dim(&ops::pad(&lifted, &side, pad_mode, None)?, 0)?;
        if signal.ndim() == 1 { ops::squeeze_dim(&padded, 0)? } else { padded }
    } else {
        signal.clone()
    };
    ops::stft(&widened, n_fft, hop_length, win_length, window, normalized, onesided, return_complex, align_to_window)
}

#[allow(clippy::too_many_arguments)] // the schema's
pub(crate) fn istft(
    spectrum: &Tensor,
    n_fft: i64,
    hop_length: Option<i64>,
    win_length: Option<i64>,
    window: Option<&Tensor>,
    center: bool,
    normalized: bool,
    onesided: Option<bool>,
    length: Option<i64>,
    return_complex: bool,
) -> Result<Tensor> {
    const OP: &str = "istft";
    let frames = Frames::new(OP, n_fft, hop_length, win_length, window)?;
    let wrong = |m: String| Err(Error::argument(OP, m));
    let (&[.., bins, count], true) = (spectrum.shape(), spectrum.is_complex() && matches!(spectrum.ndim(), 2 | 3))
    else {
        let found = format!("{} of shape {:?}", spectrum.dtype(), spectrum.shape());
        return wrong(format!("expected complex numbers [frequencies, frames] or a batch of them, found {found}"));
    };
    let onesided = onesided.unwrap_or(bins != frames.size);
    let expected = if onesided { frames.size / 2 + 1 } else { frames.size };
    if bins != expected || count == 0 || (return_complex && onesided) {
        return wrong(format!(
            "expected {expected} frequencies of n_fft {n_fft} and at least one frame, found {bins} and {count}; a complex signal needs onesided=false"
        ));
    }
    let norm = normalized.then_some("ortho");
    let lines = ops::transpose(spectrum, -1, -2)?;
    let pieces = match (onesided, return_complex) {
        (true, _) => ops::fft_irfft(&lines, Some(n_fft.into()), -1, norm)?,
        (false, true) => ops::fft_ifft(&lines, None, -1, norm)?,
        // A real signal is in the lower half already; what the upper half holds is not looked at.
        (false, false) => {
            let half = ops::slice(&lines, -1, None, Some((n_fft / 2 + 1).into()), 1.into())?;
            ops::fft_irfft(&half, Some(n_fft.into()), -1, norm)?
        }
    };
    let window = match &frames.window {
        Some(w) => w.clone(),
        None => ops::ones(&[n_fft.into()], Some(pieces.dtype().to_real()), Some(pieces.device()))?,
    };
    // Frames are added up where they overlap, and so are the squares of the window that was on them twice.
    let Some(whole) = frames.hop.checked_mul(count - 1).and_then(|n| n.checked_add(frames.size)) else {
        return wrong(format!("{count} frames every {} samples are longer than a signal can be", frames.hop));
    };
    let overlap = |pieces: &Tensor| {
        let mut sizes = pieces.dims();
        sizes.truncate(pieces.ndim() - 2);
        sizes.push(whole);
        ops::unfold_backward(pieces, &sym(&sizes), pieces.ndim() as i64 - 2, n_fft, frames.hop as i64)
    };
    let signal = overlap(&ops::mul(&pieces, &window)?)?;
    let squares = ops::expand(&ops::mul(&window, &window)?, &sym(&[count, frames.size]), false)?;
    let envelope = overlap(&squares)?;
    let start = if center { frames.size / 2 } else { 0 };
    let end = match length {
        Some(length) if length > 0 => start.saturating_add(as_size(length)),
        Some(length) => return wrong(format!("the length must be positive, found {length}")),
        None if center => whole - frames.size / 2,
        None => whole,
    };
    let cut = |t: &Tensor| ops::slice(t, -1, Some(start.into()), Some(end.min(whole).into()), 1.into());
    let envelope = cut(&envelope)?;
    let least = ops::min(&ops::abs(&envelope)?)?;
    if !least.is_meta() && ops::item(&least.detach())?.to_f64() < 1e-11 {
        return wrong("the windows do not cover the whole signal; use a shorter hop or another window".to_string());
    }
    let signal = ops::div(&cut(&signal)?, &envelope)?;
    match end > whole {
        true => ops::constant_pad_nd(&signal, &[0.into(), (end - whole).into()], Scalar::Int(0)),
        false => Ok(signal),
    }
}
