//! The page: data, style and script in one file that loads nothing.

use crate::drawing::Drawing;
use crate::layout::{Level, layout};
use serde::Serialize;

const STYLE: &str = include_str!("page/viewer.css");
/// In the order in which they build on each other.
const SCRIPTS: [&str; 4] = [
    include_str!("page/place.js"),
    include_str!("page/route.js"),
    include_str!("page/draw.js"),
    include_str!("page/controls.js"),
];
const BODY: &str = include_str!("page/body.html");

/// What the script reads.
#[derive(Serialize)]
struct Data<'a> {
    #[serde(flatten)]
    drawing: &'a Drawing,
    levels: Vec<Level>,
}

/// The whole page.
pub(crate) fn html(drawing: &Drawing) -> String {
    let data = Data { drawing, levels: layout(drawing) };
    let json = serde_json::to_string(&data).expect("plain data has a JSON form");
    // Inside a script element only `<` could end it early.
    let json = json.replace('<', "\\u003c");
    let title = escape(&drawing.title);
    let body = BODY.replace("{title}", &title).replace("{summary}", &escape(&drawing.summary));
    let script = SCRIPTS.concat();
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n<title>{title}</title>\n<style>\n{STYLE}</style>\n</head>\n\
         <body>\n{body}<script type=\"application/json\" id=\"data\">{json}</script>\n\
         <script>\n\"use strict\";\n{{\n{script}}}\n</script>\n</body>\n</html>\n"
    )
}

/// Text as markup.
fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;").replace('\'', "&#39;")
}
