// Looks at the report of a run, or at the page of several, as it is laid out, and writes down whether it can be read.
"use strict";
{
  const root = document.documentElement, all = (selector) => [...document.querySelectorAll(selector)];
  let passed = 0, failed = null;
  const check = (what, holds) => { if (holds) passed++; else failed ??= what; };
  const box = (element) => element.getBoundingClientRect();
  const inside = (a, b) => a.left >= b.left - 1 && a.right <= b.right + 1 && a.top >= b.top - 1 && a.bottom <= b.bottom + 1;
  try {
    check("there are charts", all("figure > svg").length >= 3);
    check("every chart has a line or a point", all("figure > svg").every((s) => s.querySelector("polyline, circle")));
    check("lines are numbers", all("polyline").every((p) => !/NaN|undefined|Infinity/.test(p.getAttribute("points"))));
    check("lines and marks stay in their chart", all("figure > svg").every((s) => [...s.querySelectorAll("polyline, circle, text")].every((e) => inside(box(e), box(s)))));
    check("marks of an axis do not overlap", all("figure > svg").every((s) => {
      const marks = [...s.querySelectorAll("text[text-anchor=end]")].map(box).filter((b, _, list) => b.right <= list[0].right + 1).sort((a, b) => a.top - b.top);
      return marks.slice(1).every((b, i) => b.top >= marks[i].top + 8);
    }));
    check("every line is named in its color", all("figcaption span").every((s) => getComputedStyle(s).color !== getComputedStyle(document.body).color));
    check("charts have the same size", new Set(all("figure > svg").map((s) => Math.round(box(s).width))).size === 1);
    check("nothing is wider than the window", root.scrollWidth <= window.innerWidth);
    check("headings are not empty", all("h1, h2").every((h) => h.textContent.trim() !== ""));
    check("cells hold text", all(".table td").some((c) => c.textContent !== ""));
    const confusion = document.querySelector(".confusion");
    if (confusion) {
      const rows = confusion.rows.length;
      check("the confusion matrix is square", [...confusion.rows].every((r) => r.cells.length === rows));
      check("right answers are green", [...confusion.querySelectorAll(".right")].some((c) => getComputedStyle(c).backgroundColor !== "rgba(0, 0, 0, 0)"));
      check("pictures of samples are there", all(".samples img").length > 0 && all(".samples img").every((i) => i.complete && i.naturalWidth > 0));
      const details = all("details");
      check("the tree of parameters opens", details.length > 0 && (details.forEach((d) => d.open = true), all(".leaf").every((l) => box(l).height > 0)));
      check("the graph is in its frame", document.querySelector("iframe").srcdoc.includes("</html>"));
    }
    check("nothing is loaded from elsewhere", performance.getEntriesByType("resource").every((e) => e.name.startsWith("data:")));
  } catch (e) { failed ??= String(e); }
  root.dataset.passed = passed;
  if (failed !== null) root.dataset.failed = failed;
}
