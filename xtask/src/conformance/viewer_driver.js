// Does to a page what people do, and writes down whether it answers. Runs after the page's own script, in the same page.
"use strict";
{
  const root = document.documentElement, graph = document.getElementById("graph"), search = document.getElementById("search");
  const data = JSON.parse(document.getElementById("data").textContent), total = data.nodes.length;
  let passed = 0, failed = null;
  const check = (what, holds) => { if (holds) passed++; else failed ??= what; };
  const boxes = () => [...graph.querySelectorAll(".node, .closed")];
  const press = (key, target = graph, more = {}) => target.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true, ...more }));
  const click = (id) => document.getElementById(id).click();
  const point = (kind, target) => target.dispatchEvent(new PointerEvent(kind, { bubbles: true, clientX: 300, clientY: 300 }));
  const type = (text) => { search.value = text; search.dispatchEvent(new Event("input", { bubbles: true })); };
  const zoom = () => Number(graph.dataset.zoom);
  const hasModules = data.groups.length > 1;
  // Of large graphs a page holds what is near the window.
  const large = total > 3000;
  try {
    check("something is drawn", boxes().length > 0 && Number(graph.dataset.shown) === boxes().length);

    click("open-all");
    check("all nodes are shown when all modules are open", large || graph.querySelectorAll(".node").length === total);
    check("every edge is drawn", large || graph.querySelectorAll(".edge").length === data.edges.length);
    check("a page holds few elements of a large graph", !large || graph.querySelectorAll("*").length < 30000);
    check("paths are numbers", ![...graph.querySelectorAll("path")].some((p) => /NaN|undefined/.test(p.getAttribute("d"))));
    const apart = (list) => list.every((a, i) => list.slice(i + 1, i + 40).every((b) => a.right <= b.left + 0.5 || b.right <= a.left + 0.5 || a.bottom <= b.top + 0.5 || b.bottom <= a.top + 0.5));
    check("boxes do not overlap", apart([...graph.querySelectorAll(".node > rect:first-child")].map((r) => r.getBoundingClientRect())));

    if (hasModules) {
      click("close-all");
      const closed = [...graph.querySelectorAll(".closed")];
      check("modules are closed", closed.length > 0 && graph.querySelectorAll(".frame").length === 0);
      const before = boxes().length;
      closed[0].dispatchEvent(new MouseEvent("dblclick", { bubbles: true }));
      check("a double click opens a module", boxes().length !== before && graph.querySelectorAll(".frame").length === 1);
      check("it says so", document.getElementById("said").textContent !== "");
      press("Enter");
      check("Enter closes it again", boxes().length === before);
    }

    const word = data.nodes[total - 1].label;
    type(word);
    check("search finds", /^\d+ found$/.test(document.getElementById("found").textContent) && (large || graph.querySelectorAll(".hit").length > 0));
    press("Enter", search);
    check("Enter goes to what was found", /^1 of \d+$/.test(document.getElementById("found").textContent) && graph.querySelectorAll(".selected").length === 1);
    check("its details are shown", !document.getElementById("panel").hidden && document.querySelector("#panel dl").children.length > 0);
    type("no node has this name");
    check("search finds nothing", document.getElementById("found").textContent === "0 found" && graph.querySelectorAll(".hit").length === 0);
    press("Escape", search);
    check("Escape leaves the search", search.value === "" && document.activeElement === graph);

    press("Escape");
    check("nothing is selected", document.getElementById("panel").hidden);
    press("ArrowDown");
    const first = graph.querySelector(".selected");
    check("an arrow key selects", first !== null);
    press("ArrowDown");
    check("an arrow key follows an edge", graph.querySelector(".selected") !== first && graph.querySelectorAll(".edge.lit").length > 0);
    press("ArrowUp");
    press("/");
    check("/ goes to the search", document.activeElement === search);
    search.blur();

    const scale = zoom();
    press("+");
    check("+ zooms in", zoom() > scale);
    graph.dispatchEvent(new WheelEvent("wheel", { deltaY: 300, clientX: 400, clientY: 400, bubbles: true, cancelable: true }));
    check("the wheel zooms out", zoom() < 1.25 * scale);
    click("fit");
    const place = document.getElementById("view").style.transform;
    point("pointerdown", graph);
    window.dispatchEvent(new PointerEvent("pointermove", { clientX: 360, clientY: 340 }));
    window.dispatchEvent(new PointerEvent("pointerup", { clientX: 360, clientY: 340 }));
    check("dragging moves", document.getElementById("view").style.transform !== place);

    point("pointerover", boxes()[0].querySelector("rect"));
    check("hovering tells the type", !document.getElementById("hint").hidden && document.getElementById("hint").textContent.length > 0);
    click("theme");
    check("the theme changes", root.style.colorScheme !== "");
    check("every button has a name", [...document.querySelectorAll("button, [role=button]")].every((b) => (b.getAttribute("aria-label") ?? b.textContent).trim() !== ""));
  } catch (error) {
    failed ??= `${error}`;
  }
  root.dataset.passed = passed;
  if (failed !== null) root.dataset.failed = failed;
}
