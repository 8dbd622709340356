//! Shared parts of the HTML pages: the frame, escaping, tables, charts. Pages are self-contained.

mod chart;

pub(crate) use chart::metric_charts;

use std::fmt::Write;

const STYLE: &str = include_str!("style.css");

/// Text as HTML text or attribute value.
pub(crate) fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('"', "&quot;").replace('\'', "&#39;")
}

/// A whole page.
pub(crate) fn page(title: &str, main: &str) -> String {
    format!(
        "<!doctype html><html lang='en'><meta charset='utf-8'><meta name='viewport' content='width=device-width'>\
         <title>{}</title><style>{STYLE}</style><main>{main}</main></html>\n",
        escape(title)
    )
}

/// A section with a heading and a sentence below it.
pub(crate) fn section(title: &str, lead: &str, body: &str) -> String {
    let lead = if lead.is_empty() { String::new() } else { format!("<p>{lead}</p>") };
    format!("<section><h2>{title}</h2>{lead}{body}</section>")
}

/// A table; cells are escaped. Columns after the first are aligned to the right if `numbers`.
pub(crate) fn table(head: &[&str], rows: &[Vec<String>], numbers: bool) -> String {
    let class = if numbers { "table numbers" } else { "table" };
    let mut html = format!("<div class='wide'><table class='{class}'><tr>");
    head.iter().for_each(|h| _ = write!(html, "<th>{}</th>", escape(h)));
    html += "</tr>";
    for row in rows {
        html += "<tr>";
        row.iter().for_each(|c| _ = write!(html, "<td>{}</td>", escape(c)));
        html += "</tr>";
    }
    html + "</table></div>"
}
