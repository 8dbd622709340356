//! The report of a run: one self-contained HTML page.

use super::config::Settings;
use super::data::Samples;
use super::evaluate::{Evaluation, Hard};
use super::live::{bytes, metric_text, short};
use super::run_folder::Facts;
use crate::page::{self, escape, metric_charts, section, table};
use crate::refusal::{Done, counted};
use firebrand::autograd::GraphView;
use firebrand::prelude::*;
use firebrand::train::Metrics;
use indexmap::IndexMap;
use std::fmt::Write;

/// What the page shows.
pub(super) struct Page<'a> {
    pub(super) facts: &'a Facts,
    pub(super) settings: &'a Settings,
    pub(super) history: &'a [Metrics],
    pub(super) evaluated: Option<&'a Evaluation>,
    /// The result of the evaluation.
    pub(super) data: Option<&'a Samples>,
    pub(super) parameters: &'a [ParameterRow],
    /// The history of one loss, drawn.
    pub(super) graph: Option<&'a str>,
    pub(super) seconds: f64,
    /// The epoch whose weights were written.
    pub(super) written_epoch: usize,
}

/// A parameter of the model.
pub(super) struct ParameterRow {
    path: Vec<String>,
    shape: Vec<usize>,
    bytes: usize,
    trained: bool,
}

impl ParameterRow {
    /// `frozen` are the parameters that the run froze, whatever their flags are now.
    pub(super) fn new(name: &str, p: &Parameter, frozen: &[Parameter]) -> ParameterRow {
        let trained = p.requires_grad() && !frozen.iter().any(|f| f.tensor().is_same(p.tensor()));
        let bytes = p.numel() * p.dtype().size();
        ParameterRow { path: name.split('.').map(str::to_string).collect(), shape: p.shape().to_vec(), bytes, trained }
    }

    fn numbers(&self) -> usize {
        self.shape.iter().product()
    }
}

/// With more classes than this, the matrix is unreadable.
const MATRIX: usize = 40;

/// The processor, as the system names it.
pub(super) fn cpu() -> String {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name =
        info.lines().find_map(|l| l.strip_prefix("model name")?.split_once(':').map(|(_, v)| v.trim().to_string()));
    name.unwrap_or_else(|| std::env::consts::ARCH.to_string())
}

/// The autograd graph of a loss, in a frame so that the two pages do not interfere.
pub(super) fn graph(view: &GraphView) -> String {
    let page = firebrand::viz::history_html("Autograd graph of the loss", view);
    format!(
        "<iframe title='Autograd graph of the loss' srcdoc=\"{}\"></iframe>",
        page.replace('&', "&amp;").replace('"', "&quot;")
    )
}

/// Rows are true classes, columns predicted ones.
fn confusion(counts: &[Vec<usize>], names: &[String]) -> String {
    let mut html = String::from("<div class='wide'><table class='confusion'><tr><th></th>");
    names.iter().for_each(|c| _ = write!(html, "<th>{}</th>", escape(c)));
    html += "</tr>";
    for (class, row) in counts.iter().enumerate() {
        let total = row.iter().sum::<usize>().max(1);
        let _ = write!(html, "<tr><th>{}</th>", escape(&names[class]));
        for (column, &n) in row.iter().enumerate() {
            let kind = if column == class { "right" } else { "wrong" };
            // A few errors must still be visible.
            let share = if n == 0 { 0.0 } else { (n as f64 / total as f64).max(0.15) };
            let text = if n == 0 { String::new() } else { n.to_string() };
            let _ = write!(html, "<td class='{kind}' style='--share:{share:.2}'>{text}</td>");
        }
        html += "</tr>";
    }
    html + "</table></div>"
}

/// Bytes as base64.
fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let word = chunk.iter().fold(0u32, |w, b| w << 8 | u32::from(*b)) << (8 * (3 - chunk.len()));
        for k in 0..4 {
            let digit = DIGITS[(word >> (18 - 6 * k) & 63) as usize];
            text.push(if k <= chunk.len() { digit.into() } else { '=' });
        }
    }
    text
}

/// A sample as an image, if it has the shape of one: normalized to the full brightness range, at most 96 pixels wide.
fn picture(input: &Tensor) -> Done<Option<String>> {
    let (channels, height, width) = match *input.shape() {
        [c @ (1 | 3), h, w] if h > 1 && w > 1 => (c, h, w),
        [h, w] if h > 1 && w > 1 && h <= 4 * w && w <= 4 * h => (1, h, w),
        [n] if n >= 16 && (n as f64).sqrt().fract() == 0.0 => (1, n.isqrt(), n.isqrt()),
        _ => return Ok(None),
    };
    if !input.is_floating_point() {
        return Ok(None);
    }
    let values = input.try_to_dtype(DType::F32)?.try_to_vec::<f32>()?;
    let (low, high) =
        values.iter().filter(|v| v.is_finite()).fold((f32::MAX, f32::MIN), |(l, h), v| (l.min(*v), h.max(*v)));
    let every = height.max(width).div_ceil(96);
    let (h, w) = (height.div_ceil(every), width.div_ceil(every));
    let mut pixels = Vec::with_capacity(h * w * channels);
    for y in 0..h {
        for x in 0..w {
            for c in 0..channels {
                let v = values[(c * height + y * every) * width + x * every];
                pixels.push((255.0 * (v - low) / (high - low).max(f32::MIN_POSITIVE)).clamp(0.0, 255.0) as u8);
            }
        }
    }
    let png = firebrand::data::encode_png(&pixels, [h, w, channels])?;
    Ok(Some(format!("data:image/png;base64,{}", base64(&png))))
}

/// The samples with the largest losses: as images if they are images, otherwise as a table.
fn hardest(worst: &[Hard], data: &Samples, names: &[String]) -> Done<String> {
    let class = |c: Option<i64>| c.map(|c| names.get(c as usize).cloned().unwrap_or(c.to_string()));
    let mut figures = String::from("<div class='samples'>");
    let mut rows = Vec::new();
    for hard in worst {
        let (label, predicted) = (class(hard.label), class(hard.predicted));
        let wrong = label != predicted;
        if let Some(source) = picture(&hard.input)? {
            let kind = if wrong { "no" } else { "ok" };
            let (name, text) = (data.name(hard.row), predicted.clone().unwrap_or_default());
            let should = if wrong {
                format!(" <small>should be {}</small>", escape(&label.clone().unwrap_or_default()))
            } else {
                String::new()
            };
            let _ = write!(
                figures,
                "<figure class='{kind}' title='{}: loss {}'><img alt='' src='{source}'><figcaption>{}{should}</figcaption></figure>",
                escape(&name),
                short(hard.loss),
                escape(&text),
            );
        } else {
            rows.push(vec![
                data.name(hard.row),
                short(hard.loss),
                label.unwrap_or_default(),
                predicted.unwrap_or_default(),
            ]);
        }
    }
    if rows.is_empty() {
        return Ok(figures + "</div>");
    }
    // Samples with several labels have none to show.
    let mut columns = vec!["sample", "loss", "label", "predicted"];
    if rows.iter().all(|row| row[2..].iter().all(String::is_empty)) {
        columns.truncate(2);
        rows.iter_mut().for_each(|row| row.truncate(2));
    }
    Ok(table(&columns, &rows, true))
}

/// The module tree with parameter counts, what is trainable, and memory.
fn tree(rows: &[&ParameterRow], depth: usize) -> String {
    let mut html = String::new();
    // Adapters come behind all other parameters, and belong to their modules.
    let mut parts: IndexMap<&str, Vec<&ParameterRow>> = IndexMap::new();
    for row in rows {
        parts.entry(row.path.get(depth).map_or("", String::as_str)).or_default().push(row);
    }
    for (name, part) in &parts {
        let part = part.as_slice();
        let sum = |f: &dyn Fn(&ParameterRow) -> usize| part.iter().map(|r| f(r)).sum::<usize>();
        let (all, trained) = (sum(&|r| r.numbers()), sum(&|r| if r.trained { r.numbers() } else { 0 }));
        let class = if trained == 0 { " class='frozen'" } else { "" };
        let state = match trained {
            0 => "frozen".to_string(),
            t if t == all => "trained".into(),
            t => format!("{t} trained"),
        };
        let facts = format!("{all} elements, {}, {state}", bytes(sum(&|r| r.bytes)));
        if let [one] = part
            && one.path.len() <= depth + 1
        {
            let _ = write!(
                html,
                "<div class='leaf'><span{class}><code>{}</code> {:?}: {facts}</span></div>",
                escape(name),
                one.shape
            );
            continue;
        }
        let open = if depth == 0 && rows.len() < 40 { " open" } else { "" };
        let _ = write!(
            html,
            "<details{open}><summary{class}><code>{}</code>: {facts}</summary>{}</details>",
            escape(name),
            tree(part, depth + 1)
        );
    }
    html
}

/// Metrics of the last epoch, and the best of each with its epoch.
fn summary(history: &[Metrics]) -> String {
    let Some(last) = history.last() else { return String::new() };
    let row = |name: &String| {
        let lower = ["loss", "mae", "rmse", "perplexity", "lr"].iter().any(|m| name.ends_with(m));
        let of = |m: &Metrics| m.get(name).copied().filter(|v| v.is_finite());
        let better = |a: f64, b: f64| if lower { a < b } else { a > b };
        let mut best: Option<(usize, f64)> = None;
        for (k, v) in history.iter().enumerate().filter_map(|(k, m)| Some((k, of(m)?))) {
            if best.is_none_or(|(_, b)| better(v, b)) {
                best = Some((k + 1, v));
            }
        }
        let (epoch, value) =
            best.map_or((String::new(), String::new()), |(k, v)| (k.to_string(), metric_text(name, v)));
        vec![name.clone(), metric_text(name, last[name]), value, epoch]
    };
    let rows: Vec<Vec<String>> = last.keys().filter(|n| *n != "lr").map(row).collect();
    table(&["metric", "last epoch", "best", "epoch"], &rows, true)
}

/// The whole page.
pub(super) fn page(p: &Page<'_>) -> Done<String> {
    let facts = p.facts;
    let last = |name: &str| p.history.last().and_then(|m| m.get(name)).copied();
    let accuracy = p.evaluated.and_then(|e| e.metrics.get("accuracy"));
    let perplexity = p.evaluated.and_then(|e| e.metrics.get("perplexity"));
    let (figure, of) = match (perplexity.or(accuracy), p.evaluated) {
        (Some(v), Some(e)) if perplexity.is_some() => {
            (short(*v), format!("perplexity of {} validation samples", e.samples))
        }
        (Some(a), Some(e)) => (format!("{:.2}%", 100.0 * a), format!("of {} validation samples", e.samples)),
        (None, Some(e)) => (short(e.metrics["loss"]), "validation loss".into()),
        _ => (short(last("train_loss").unwrap_or(f64::NAN)), "training loss".into()),
    };
    let mut main = format!(
        "<h1>{figure} <small>{}</small></h1><p>{}: {} of {} parameters trained on {} samples of {} in batches of {}, \
         {} in {:.1} s on {} of {}; weights of epoch {}; firebrand {}.</p>",
        escape(&of),
        escape(&facts.model),
        facts.trainable,
        facts.parameters,
        facts.train_samples,
        escape(&facts.data),
        facts.batch_size,
        counted(p.history.len(), "epoch"),
        p.seconds,
        counted(facts.threads, "thread"),
        escape(&facts.cpu),
        p.written_epoch,
        facts.version,
    );
    let _ = write!(main, "<section class='row'>{}</section>", metric_charts(&[(String::new(), p.history)]));
    main += &section("Metrics", "", &summary(p.history));
    if let (Some(e), Some(data)) = (p.evaluated, p.data) {
        let numbered = || (0..e.per_class.len()).map(|c| c.to_string()).collect::<Vec<_>>();
        let mut names = data.classes.clone().unwrap_or_else(numbered);
        (names.len()..e.per_class.len()).for_each(|c| names.push(c.to_string()));
        if let Some(matrix) = e.confusion.as_ref().filter(|m| m.counts.len() <= MATRIX) {
            main += &section(
                "Confusion matrix",
                "Rows are the true classes, columns the predicted ones.",
                &confusion(&matrix.counts, &names),
            );
        }
        if (1..=200).contains(&e.per_class.len()) {
            let share = |v: f64| format!("{:.1}%", 100.0 * v);
            let row = |(s, n): (&firebrand::train::ClassScores, &String)| {
                vec![n.clone(), share(s.precision), share(s.recall), share(s.f1), s.support.to_string()]
            };
            let rows: Vec<Vec<String>> = e.per_class.iter().zip(&names).map(row).collect();
            main += &section("Classes", "", &table(&["class", "precision", "recall", "F1", "samples"], &rows, true));
        }
        if !e.worst.is_empty() {
            main += &section(
                "Hardest samples",
                "Validation samples with the largest losses, largest first.",
                &hardest(&e.worst, data, &names)?,
            );
        }
    }
    let rows: Vec<&ParameterRow> = p.parameters.iter().collect();
    main += &section("Parameters", "", &tree(&rows, 0));
    let settings: Vec<Vec<String>> = p.settings.iter().map(|(n, v)| vec![n.to_string(), v]).collect();
    main += &section("Settings", "As in <code>run.toml</code>.", &table(&["option", "value"], &settings, false));
    if let Some(graph) = p.graph {
        let lead = "Gradients flow along the arrows; bars show how many bytes a node saves for backward.";
        main += &section("Autograd graph of the loss", lead, graph);
    }
    Ok(page::page(&format!("firebrand train: {figure}"), &main))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_padded() {
        for (bytes, text) in [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foobar", "Zm9vYmFy")] {
            assert_eq!(base64(bytes.as_bytes()), text);
        }
    }

    #[test]
    fn the_tree_says_what_is_trained() {
        let row = |name: &str, n: usize, trained| ParameterRow {
            path: name.split('.').map(str::to_string).collect(),
            shape: vec![n],
            bytes: 4 * n,
            trained,
        };
        let rows = [
            row("body.a.weight", 6, false),
            row("head", 3, true),
            row("body.b.weight", 2, true), // as an adapter, behind all others
        ];
        let html = tree(&rows.iter().collect::<Vec<_>>(), 0);
        for part in
            ["body</code>: 8 elements, 32 B, 2 trained", "class='frozen'><code>a", "head</code> [3]: 3 elements"]
        {
            assert!(html.contains(part), "{part}: {html}");
        }
    }
}
