//! The report of a run: one HTML page without references to anything outside it.

use super::{Config, Evaluation};
use crate::refusal::Done;
use firebrand::autograd::GraphView;
use firebrand::digits::Digits;
use firebrand::train::Metrics;
use std::fmt::Write;

/// What the page shows.
pub(crate) struct Page<'a> {
    pub(crate) config: &'a Config,
    pub(crate) history: &'a [Metrics],
    pub(crate) test: &'a Digits,
    pub(crate) tested: &'a Evaluation,
    /// The history of one loss.
    pub(crate) graph: &'a GraphView,
    pub(crate) seconds: f64,
}

const STYLE: &str = include_str!("report.css");
/// How many test samples are shown.
const SAMPLES: usize = 30;

/// One line of a chart.
struct Series<'a> {
    name: &'a str,
    class: &'a str,
    values: Vec<f64>,
}

/// The next of 1, 2, 5, 10, 20, 50, … times a power of ten.
fn round_up(v: f64) -> f64 {
    let power = 10f64.powf(v.max(1e-9).log10().floor());
    [1.0, 2.0, 5.0, 10.0].iter().map(|m| m * power).find(|&c| c >= v * (1.0 - 1e-9)).unwrap_or(v)
}

/// A vertical axis: its marks, lowest and highest first and last, and whether equal factors are equally far apart.
struct Axis {
    marks: Vec<f64>,
    logarithmic: bool,
}

impl Axis {
    /// Four to six marks at round numbers, from `low` to beyond `high`.
    fn linear(low: f64, high: f64) -> Axis {
        let step = round_up((high - low).max(1e-9) / 5.0);
        let count = ((high - low) / step - 1e-9).ceil().max(1.0) as u32;
        Axis { marks: (0..=count).map(|k| low + step * f64::from(k)).collect(), logarithmic: false }
    }

    /// For numbers of one size; for those of many, powers of ten with 2 and 5 between them while they are few.
    fn of_sizes(values: impl Iterator<Item = f64> + Clone) -> Axis {
        let known = values.filter(|v| v.is_finite());
        let (high, low) = (known.clone().fold(0.0, f64::max), known.fold(f64::INFINITY, f64::min));
        if low <= 0.0 || high < 15.0 * low {
            return Axis::linear(0.0, high);
        }
        let decades = low.log10().floor() as i32..=high.log10().ceil() as i32;
        let between: &[f64] = if decades.clone().count() > 4 { &[1.0] } else { &[1.0, 2.0, 5.0] };
        let all: Vec<f64> = decades.flat_map(|d| between.iter().map(move |m| m * 10f64.powi(d))).collect();
        let first = all.iter().rposition(|&m| m <= low).unwrap_or(0);
        let last = all.iter().position(|&m| m >= high).unwrap_or(all.len() - 1);
        Axis { marks: all[first..=last].to_vec(), logarithmic: true }
    }

    /// Where a number stands, from 0 at the lowest mark to 1 at the highest.
    fn share(&self, v: f64) -> f64 {
        let (low, high) = (self.marks[0], self.marks[self.marks.len() - 1]);
        let v = v.clamp(low, high);
        if self.logarithmic { (v / low).ln() / (high / low).ln() } else { (v - low) / (high - low) }
    }
}

/// A line chart over epochs.
fn chart(title: &str, series: &[Series<'_>], axis: &Axis, label: impl Fn(f64) -> String) -> String {
    const LEFT: f64 = 56.0;
    const TOP: f64 = 14.0;
    const WIDTH: f64 = 420.0;
    const HEIGHT: f64 = 200.0;
    let count = series.first().map_or(0, |s| s.values.len());
    let x = |i: usize| LEFT + WIDTH * if count > 1 { i as f64 / (count - 1) as f64 } else { 0.5 };
    let y = |v: f64| TOP + HEIGHT * (1.0 - axis.share(v));
    let mut svg =
        format!("<figure><figcaption>{title}</figcaption><svg viewBox='0 0 500 250' role='img' aria-label='{title}'>");
    for &v in &axis.marks {
        let at = y(v);
        let _ = write!(
            svg,
            "<line class='grid' x1='{LEFT}' x2='{}' y1='{at:.1}' y2='{at:.1}'/><text x='{}' y='{:.1}' text-anchor='end'>{}</text>",
            LEFT + WIDTH,
            LEFT - 6.0,
            at + 4.0,
            label(v)
        );
    }
    let below = TOP + HEIGHT + 18.0;
    // One epoch has no ends to name.
    let ends = if count > 1 { vec![(0, "start"), (count - 1, "end")] } else { Vec::new() };
    for (i, anchor) in ends {
        let _ = write!(svg, "<text x='{:.1}' y='{below}' text-anchor='{anchor}'>{}</text>", x(i), i + 1);
    }
    let _ = write!(svg, "<text x='{}' y='{below}' text-anchor='middle'>epoch</text>", LEFT + WIDTH / 2.0);
    for (k, s) in series.iter().enumerate() {
        let points: Vec<String> =
            s.values.iter().enumerate().map(|(i, &v)| format!("{:.1},{:.1}", x(i), y(v))).collect();
        let _ = write!(svg, "<polyline class='{}' points='{}'/>", s.class, points.join(" "));
        if let Some(&last) = s.values.last() {
            let _ = write!(svg, "<circle class='{}' cx='{:.1}' cy='{:.1}' r='3'/>", s.class, x(count - 1), y(last));
        }
        let at = TOP + 14.0 + 16.0 * k as f64;
        let _ = write!(
            svg,
            "<text class='{}' x='{}' y='{at}' text-anchor='end'>{}</text>",
            s.class,
            LEFT + WIDTH - 8.0,
            s.name
        );
    }
    svg + "</svg></figure>"
}

/// The values of a metric, epoch by epoch; none if no epoch has it.
fn metric(history: &[Metrics], name: &str) -> Option<Vec<f64>> {
    let values: Vec<f64> = history.iter().map(|m| m.get(name).copied().unwrap_or(f64::NAN)).collect();
    values.iter().any(|v| !v.is_nan()).then_some(values)
}

/// Charts of what was measured: the loss, and the accuracy if there are tests.
fn curves(history: &[Metrics]) -> String {
    let series = |name, class, values: Option<Vec<f64>>| values.map(|values| Series { name, class, values });
    let train = series("train", "a", metric(history, "train_loss"));
    let test = series("test", "b", metric(history, "loss"));
    let loss: Vec<Series<'_>> = train.into_iter().chain(test).collect();
    let axis = Axis::of_sizes(loss.iter().flat_map(|s| s.values.iter().copied()));
    let title = if axis.logarithmic { "Loss (log scale)" } else { "Loss" };
    let shown = |v: f64| format!("{v:.6}").trim_end_matches('0').trim_end_matches('.').to_string();
    let mut charts = chart(title, &loss, &axis, shown);
    if let Some(accuracy) = series("test", "b", metric(history, "test_accuracy")) {
        let low = accuracy.values.iter().copied().fold(1.0, f64::min);
        // Down to a round number whose distance to 100% has round parts.
        let low = 1.0 - round_up((1.0 - low).max(0.05));
        charts += &chart("Accuracy", &[accuracy], &Axis::linear(low, 1.0), |v| format!("{:.0}%", 100.0 * v));
    }
    charts
}

/// Rows are true classes, columns predicted ones.
fn confusion(counts: &[Vec<usize>]) -> String {
    let mut html = String::from("<table class='confusion'><tr><th></th>");
    (0..counts.len()).for_each(|c| html += &format!("<th>{c}</th>"));
    html += "</tr>";
    for (class, row) in counts.iter().enumerate() {
        let total = row.iter().sum::<usize>().max(1);
        let _ = write!(html, "<tr><th>{class}</th>");
        for (column, &n) in row.iter().enumerate() {
            let kind = if column == class { "right" } else { "wrong" };
            // Few errors must still be seen.
            let share = if n == 0 { 0.0 } else { (n as f64 / total as f64).max(0.15) };
            let text = if n == 0 { String::new() } else { n.to_string() };
            let _ = write!(html, "<td class='{kind}' style='--share:{share:.2}'>{text}</td>");
        }
        html += "</tr>";
    }
    html + "</table>"
}

/// Test images with the model's predictions, mistakes first.
fn samples(images: &[f32], truth: &[i64], predicted: &[i64]) -> String {
    let mut order: Vec<usize> = (0..truth.len()).collect();
    order.sort_by_key(|&i| truth[i] == predicted[i]);
    let mut html = String::from("<div class='samples'>");
    for &i in order.iter().take(SAMPLES) {
        let class = if truth[i] == predicted[i] { "ok" } else { "no" };
        let _ = write!(html, "<figure class='{class}'><svg viewBox='0 0 8 8' shape-rendering='crispEdges'>");
        for (k, ink) in images[64 * i..64 * (i + 1)].iter().enumerate().filter(|(_, ink)| **ink > 0.0) {
            let _ = write!(html, "<rect x='{}' y='{}' width='1' height='1' opacity='{ink:.2}'/>", k % 8, k / 8);
        }
        let _ = write!(html, "</svg><figcaption>{}", predicted[i]);
        if class == "no" {
            let _ = write!(html, " <small>should be {}</small>", truth[i]);
        }
        html += "</figcaption></figure>";
    }
    html + "</div>"
}

/// The autograd graph of the loss, in a frame so that the two pages do not interfere.
fn graph(view: &GraphView) -> String {
    let page = firebrand::viz::history_html("Autograd graph of the loss", view);
    let page = page.replace('&', "&amp;").replace('"', "&quot;");
    format!("<iframe title='Autograd graph of the loss' srcdoc=\"{page}\"></iframe>")
}

/// The whole page.
pub(crate) fn page(p: &Page<'_>) -> Done<String> {
    let truth = p.test.labels.try_to_vec::<i64>()?;
    let images = p.test.images.try_to_vec::<f32>()?;
    let Config { epochs, lr, batch_size, seed, threads, parameters, model, version, bf16, .. } = p.config;
    let precision = if *bf16 { ", bfloat16 autocast" } else { "" };
    let seconds = p.seconds;
    Ok(format!(
        "<!doctype html><html lang='en'><meta charset='utf-8'><meta name='viewport' content='width=device-width'>\
         <title>firebrand train: {accuracy:.2}%</title><style>{STYLE}</style>\
         <main><h1>{accuracy:.2}% <small>of {tests} test digits</small></h1>\
         <p>A convolutional network ({model}; {parameters} parameters), AdamW with a peak learning rate of {lr}, batches of {batch_size}, {epochs} epochs{precision} in \
         {seconds:.1} s on {threads} threads, seed {seed}; firebrand {version}.</p>\
         <section class='row'>{curves}</section>\
         <section><h2>Confusion matrix</h2><p>Rows are the true digits, columns the predicted ones.</p>{confusion}</section>\
         <section><h2>Predictions</h2><p>Mistakes first.</p>{samples}</section>\
         <section><h2>Autograd graph of the loss</h2><p>Gradients flow along the arrows; bars show how much a node saves for backward.</p>{graph}</section>\
         </main></html>\n",
        accuracy = 100.0 * p.tested.confusion.accuracy(),
        tests = truth.len(),
        curves = curves(p.history),
        confusion = confusion(&p.tested.confusion.counts),
        samples = samples(&images, &truth, &p.tested.predicted),
        graph = graph(p.graph),
    ))
}

/// The page of a program that was fine-tuned.
pub(crate) fn program_page(config: &Config, history: &[Metrics], graph_view: &GraphView, seconds: f64) -> String {
    let escape = |text: &str| text.replace('&', "&amp;").replace('<', "&lt;");
    let Config { epochs, lr, batch_size, seed, threads, parameters, version, train_samples, .. } = config;
    let last = metric(history, "train_loss").and_then(|v| v.last().copied()).unwrap_or(f64::NAN);
    format!(
        "<!doctype html><html lang='en'><meta charset='utf-8'><meta name='viewport' content='width=device-width'>\
         <title>firebrand train: loss {last:.4}</title><style>{STYLE}</style>\
         <main><h1>{last:.4} <small>loss of {model}</small></h1>\
         <p>{parameters} parameters, {optimizer} {lr}, {train_samples} samples of {data} in batches of {batch_size}, \
         {epochs} epochs in {seconds:.1} s on {threads} threads, seed {seed}; firebrand {version}.</p>\
         <section class='row'>{curves}</section>\
         <section><h2>Autograd graph of the loss</h2>{graph}</section>\
         </main></html>\n",
        model = escape(&config.model),
        data = escape(&config.data),
        optimizer = config.optimizer,
        curves = curves(history),
        graph = graph(graph_view),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_have_round_marks() {
        let marks = |values: &[f64]| {
            let marks = Axis::of_sizes(values.iter().copied()).marks;
            marks.iter().map(|m| format!("{m:.4}").trim_end_matches("000").to_string()).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(marks(&[0.9, 0.31]), "0.0 0.2 0.4 0.6 0.8 1.0");
        assert_eq!(marks(&[2.3, 0.06]), "0.0500 0.1 0.2 0.5 1.0 2.0 5.0");
        assert_eq!(marks(&[30.0, 0.0007, f64::NAN]), "0.0001 0.0010 0.0100 0.1 1.0 10.0 100.0");
        assert_eq!(Axis::of_sizes([0.0].into_iter()).marks.len(), 2);
        let axis = Axis::of_sizes([2.3, 0.06].into_iter());
        assert!(axis.logarithmic && (axis.share(0.5) - 0.5).abs() < 1e-12 && axis.share(5.0) == 1.0);
        assert_eq!(Axis::linear(0.9, 1.0).marks.len(), 6);
    }
}
