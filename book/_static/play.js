// {play} boxes: what they write and draw. Run in the page by play_live.js, and once when the book is built by book_play_script.py.
// The formulas arrive as functions made from the package's own.
(function (root) {
  "use strict";
  const PREFIXED = new Set(["B", "s", "FLOP", "B/s", "FLOP/s", "B/token", "FLOP/token"]);
  const PREFIXES = [[1e15, "P"], [1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"], [1, ""], [1e-3, "m"], [1e-6, "µ"], [1e-9, "n"]];
  const RIGHT = 18, TOP = 14, BOTTOM = 46, HEIGHT = 340, WIDTH = 640, SAMPLES = 121;
  const superscript = (n) => String(n).replace(/[-0-9]/g, (c) => (c === "-" ? "⁻" : "⁰¹²³⁴⁵⁶⁷⁸⁹"[+c]));
  const escape = (text) => text.replace(/[&<>"']/g, (c) => "&" + { "&": "amp", "<": "lt", ">": "gt", '"': "quot", "'": "#x27" }[c] + ";");
  const fixed = (x) => x.toFixed(1);

  function significant(value, digits) {
    if (value === 0) return "0";
    const places = Math.max(0, digits - 1 - Math.floor(Math.log10(Math.abs(value))));
    const text = value.toFixed(places);
    return text.includes(".") ? text.replace(/0+$/, "").replace(/\.$/, "") : text;
  }

  function readable(value, unit = "", digits = 3) {
    if (!Number.isFinite(value)) return "none";
    if (PREFIXED.has(unit)) {
      const size = Math.abs(value) * (1 + 5e-4);
      for (const [factor, prefix] of PREFIXES) {
        if (size >= factor && !(unit === "s" && factor > 1) && !(unit !== "s" && factor < 1)) return `${significant(value / factor, digits)} ${prefix}${unit}`;
      }
      return `${significant(value, digits)} ${unit}`;
    }
    const after = unit === "" || unit === "%" ? unit : " " + unit;
    if (value !== 0 && (Math.abs(value) >= 1e7 || Math.abs(value) < 1e-3)) {
      const exponent = Math.floor(Math.log10(Math.abs(value)));
      const times = significant(value / 10 ** exponent, digits);
      return `${times === "1" ? "" : `${times}×`}10${superscript(exponent)}${after}`;
    }
    if (Math.abs(value) >= 999.5) return String(Math.floor(value + 0.5)).replace(/\B(?=(\d{3})+$)/g, ",") + after;
    const text = significant(value, digits), one = text === "1" && /^ [a-z]{3,}s$/.test(after);
    return text + (one ? after.slice(0, -1) : after); // 1 token
  }

  function ticks(low, high, log) {
    if (log) {
      const first = Math.floor(Math.log10(low)), last = Math.ceil(Math.log10(high)), decades = Math.log10(high / low);
      const steps = decades < 3 ? [1, 2, 5] : [1], skip = Math.max(1, Math.ceil(decades / 7)), made = [];
      for (let power = first; power <= last; power++) if ((power - first) % skip === 0) for (const step of steps) made.push(step * 10 ** power);
      const inside = made.filter((tick) => low * (1 - 1e-9) <= tick && tick <= high * (1 + 1e-9));
      if (inside.length > 1) return inside; // else the range is as good as linear
    }
    const rough = (high - low) / 5, power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].map((f) => power * f).find((s) => s >= rough * (1 - 1e-9)), made = [];
    for (let i = Math.ceil(low / step - 1e-9); i <= Math.floor(high / step + 1e-9); i++) made.push(i * step);
    return made;
  }

  function span(values, log, low, high) {
    let finite = values.filter((v) => Number.isFinite(v) && (v > 0 || !log));
    if (!finite.length) finite = [1];
    const bottom = low ?? (log ? Math.min(...finite) : Math.min(0, ...finite));
    const top = high ?? Math.max(...finite) * (log ? 1.15 : 1.05);
    return [bottom, top > bottom ? top : bottom + 1];
  }

  const place = (v, low, high, log, a, b) => a + (b - a) * (log ? Math.log(v / low) / Math.log(high / low) : (v - low) / (high - low));
  const evaluate = (f, v) => { const y = f(v); return typeof y === "number" ? y : NaN; };
  const outputOf = (spec, name) => spec.outputs.find((output) => output.name === name);
  const fits = (spec, formulas, v) => !spec.room || evaluate(formulas[spec.room.needs], v) <= evaluate(formulas[spec.room.has], v);

  // An output's number; none where the step that it speaks of cannot run.
  function valueIn(spec, formulas, name, v) {
    return outputOf(spec, name).needs_room && !fits(spec, formulas, v) ? NaN : evaluate(formulas[name], v);
  }

  function written(spec, formulas, output, v) {
    if (output.needs_room && !fits(spec, formulas, v)) return "does not fit";
    const value = evaluate(formulas[output.name], v);
    return output.says.length ? output.says[value] : readable(value, output.unit, output.digits);
  }

  function roomSays(spec, formulas, v) {
    if (!spec.room) return "";
    const { needs, has } = spec.room;
    const [needed, there] = [needs, has].map((name) => written(spec, formulas, outputOf(spec, name), v));
    return fits(spec, formulas, v) ? `Fits: ${needed} of ${there}.` : `Does not fit: ${needed} needed, ${there} there.`;
  }

  // The drawing, on which a point of the axis is x.
  function frame(spec, formulas, state, width) {
    const { axis, curves, marks, log_y } = spec.plot, across = axis.high - axis.low;
    const even = Array.from({ length: SAMPLES }, (_, i) => axis.log ? axis.low * (axis.high / axis.low) ** (i / (SAMPLES - 1)) : axis.low + across * i / (SAMPLES - 1));
    const bends = marks.map((mark, i) => mark.axis === "x" ? evaluate(formulas["mark" + i], state) : NaN).filter((x) => axis.low < x && x < axis.high);
    const xs = [...even, ...bends].sort((a, b) => a - b);
    const room = xs.map((x) => fits(spec, formulas, { ...state, [axis.name]: Math.ceil(x) })); // only whole numbers run
    const ys = curves.map((name) => xs.map((x, i) => room[i] || !outputOf(spec, name).needs_room ? evaluate(formulas[name], { ...state, [axis.name]: x }) : NaN));
    const [low, high] = span(ys.flat(), log_y, spec.plot.low, spec.plot.high), right = width - RIGHT, bottom = HEIGHT - BOTTOM, top = TOP + 16 * marks.filter((mark) => mark.axis === "x").length;
    const left = 16 + 7 * Math.max(...ticks(low, high, log_y).map((tick) => readable(tick, spec.plot.unit).length)); // 12 pixels high, 7 wide
    return {
      xs, ys, low, high, left, right, top, bottom,
      xAt: (v) => place(v, axis.low, axis.high, axis.log, left, right), yAt: (v) => place(v, low, high, log_y, bottom, top),
    };
  }

  function drawAxes(plot, { low, high, left, right, top, bottom, xAt, yAt }) {
    const { axis } = plot;
    let made = `<rect class="tp-frame" x="${left}" y="${top}" width="${right - left}" height="${bottom - top}"/>`, lastX = -Infinity, lastEnd = -Infinity;
    for (const tick of ticks(low, high, plot.log_y)) {
      const y = fixed(yAt(tick));
      made += `<line class="tp-grid" x1="${left}" x2="${right}" y1="${y}" y2="${y}"/>`
        + `<text class="tp-tick" x="${left - 8}" y="${y}" dy="4" text-anchor="end">${readable(tick, plot.unit)}</text>`;
    }
    for (const tick of ticks(axis.low, axis.high, axis.log)) {
      const at = xAt(tick), x = fixed(at);
      made += `<line class="tp-grid" x1="${x}" x2="${x}" y1="${top}" y2="${bottom}"/>`;
      const said = readable(tick, PREFIXED.has(axis.unit) ? axis.unit : ""), half = 3.8 * said.length, within = Math.min(at, right + RIGHT - half); // the last one stays in the picture
      if (at - lastX < 44 || within - half < lastEnd + 4) continue; // no room for two labels
      lastX = at;
      lastEnd = within + half;
      made += `<text class="tp-tick" x="${fixed(within)}" y="${bottom + 18}" text-anchor="middle">${said}</text>`;
    }
    const unit = axis.unit && !PREFIXED.has(axis.unit) ? ` (${axis.unit})` : "";
    return made + `<text class="tp-axis" x="${fixed((left + right) / 2)}" y="${HEIGHT - 6}" text-anchor="middle">${escape(axis.label + unit)}</text>`;
  }

  function drawMarks(spec, formulas, state, { low, high, left, right, top, bottom, xAt, yAt }) {
    const { axis, marks } = spec.plot;
    const values = marks.map((mark, index) => evaluate(formulas["mark" + index], state));
    // Labels of upright marks stand below each other, above the data: the rightmost on top, so that a lower one ends left of its line.
    const order = marks.map((_, index) => index).sort((a, b) => (values[b] || 0) - (values[a] || 0) || a - b);
    let made = "", line = 0, end = right + RIGHT;
    for (const index of order) {
      const mark = marks[index], value = values[index], upright = mark.axis === "x", label = escape(mark.label);
      const [from, to] = upright ? [axis.low, axis.high] : [low, high], y = 12 + 16 * line;
      if (upright) line++; // the others keep their places where one is nowhere
      if (!Number.isFinite(value)) continue;
      // Of what lies out of the frame the name stands at that edge, with an arrow.
      const before = value < from - 1e-9 * Math.abs(from), beyond = value > to + 1e-9 * Math.abs(to);
      const at = before || beyond ? (upright ? (before ? left : right) : (before ? bottom - 4 : top + 20)) : upright ? xAt(value) : yAt(value);
      const name = before ? `${upright ? "←" : "↓"} ${label}` : beyond ? (upright ? `${label} →` : `↑ ${label}`) : label;
      if (upright) {
        const half = 4 * (mark.label.length + (name === label ? 0 : 2.5)), middle = Math.max(half, Math.min(end - half, at)); // 12 pixels high, bold
        if (name === label) {
          made += `<line class="tp-mark" x1="${fixed(at)}" x2="${fixed(at)}" y1="${y + 4}" y2="${bottom}"/>`;
          end = at - 4;
        }
        made += `<text class="tp-mark-label" x="${fixed(middle)}" y="${y}" text-anchor="middle">${name}</text>`;
      } else {
        if (name === label) made += `<line class="tp-mark" x1="${left}" x2="${right}" y1="${fixed(at)}" y2="${fixed(at)}"/>`;
        made += `<text class="tp-mark-label" x="${right - 6}" y="${fixed(at - 6)}" text-anchor="end">${name}</text>`;
      }
    }
    return made;
  }

  // Where the present state stands: on each curve, or at the dot.
  function nowAt(spec, formulas, state) {
    const { axis, curves, dot } = spec.plot;
    if (dot) return [[valueIn(spec, formulas, dot.x, state), valueIn(spec, formulas, dot.y, state)]];
    return curves.map((name) => [state[axis.name], valueIn(spec, formulas, name, state)]);
  }

  function draw(spec, formulas, state, width) {
    const made = frame(spec, formulas, state, width), { xs, ys, low, high, xAt, yAt } = made, { log_y } = spec.plot;
    const curves = ys.map((curve, index) => {
      let d = "", up = true;
      curve.forEach((y, i) => {
        if (!Number.isFinite(y) || (log_y && y <= 0) || y > high || y < low) { up = true; return; }
        d += (up ? "M" : "L") + fixed(xAt(xs[i])) + " " + fixed(yAt(y));
        up = false;
      });
      return `<path class="tp-curve tp-c${index}" d="${d}"/>`;
    });
    const dots = nowAt(spec, formulas, state).map(([x, y], index) => Number.isFinite(y) && low <= y && y <= high
      ? `<circle class="tp-now tp-c${index}" cx="${fixed(xAt(x))}" cy="${fixed(yAt(y))}" r="${spec.plot.dot ? 9 : 5}"/>` : "");
    return drawAxes(spec.plot, made) + drawMarks(spec, formulas, state, made) + curves.join("") + dots.join("");
  }

  function describe(spec, formulas, state) {
    const { axis, curves, dot, marks, unit } = spec.plot;
    const said = (dot ? [dot.x, dot.y] : curves).map((name) => `${outputOf(spec, name).label} ${written(spec, formulas, outputOf(spec, name), state)}`)
      .concat(marks.map((mark, i) => `${mark.label} at ${readable(evaluate(formulas["mark" + i], state), mark.axis === "x" ? axis.unit : unit)}`));
    const drag = inputOf(spec, dot ? dot.drag : axis.name);
    return `Line plot over ${axis.label}, from ${readable(axis.low, axis.unit)} to ${readable(axis.high, axis.unit)}. `
      + `At ${drag.label} ${readable(state[drag.name], drag.unit)}: ${said.join(", ")}.`;
  }

  // The same tile of weights, met by one row and by as many as there are.
  function drawRows(count) {
    const cell = 12, step = 14, tile = 8, most = 12, gap = 18, top = 22;
    const cells = (x, y, rows, css) => Array.from({ length: rows * tile }, (_, i) =>
      `<rect class="${css}" x="${x + (i % tile) * step}" y="${y + Math.floor(i / tile) * step}" width="${cell}" height="${cell}"/>`).join("");
    const words = (x, y, text, css) => `<text class="${css}" x="${x}" y="${y}">${text}</text>`;
    const panel = (x, rows) => {
      const name = rows === 1 ? "1 row" : `${readable(rows)} rows`, shown = Math.min(rows, most), more = rows - shown, foot = top + most * step + gap;
      return words(x, 12, name, "tp-rows-name") + cells(x, top + (most - shown) * step, shown, "tp-row") + (more ? words(x + tile * step + 4, foot - gap, `+ ${readable(more)}`, "tp-tick") : "")
        + cells(x, foot, tile, "tp-weight") + words(x, foot + tile * step + 14, `each used ${rows === 1 ? "once" : readable(rows) + " times"}`, "tp-tick");
    };
    return panel(0, 1) + panel(168, count);
  }

  const inputOf = (spec, name) => spec.inputs.find((item) => item.name === name);
  const within = (item, value) => Math.min(item.high, Math.max(item.low, value));

  // A slider's handle stands between 0 and 1, or at the number of one of its values.
  function positionOf(item, value) {
    return item.values.length ? item.values.indexOf(value) : place(value, item.low, item.high, item.log, 0, 1);
  }

  function valueOf(item, position) {
    if (item.values.length) return item.values[Math.round(position)];
    if (position <= 0) return item.low;
    if (position >= 1) return item.high;
    const raw = item.log ? item.low * (item.high / item.low) ** position : item.low + (item.high - item.low) * position;
    return within(item, Math.round(raw / item.step) * item.step);
  }

  // What a key makes of a value: arrows one step, pages a tenth of the slider's length; undefined for other keys.
  function keyed(item, value, key) {
    const sign = { ArrowUp: 1, ArrowRight: 1, PageUp: 1, ArrowDown: -1, ArrowLeft: -1, PageDown: -1 }[key];
    if (key === "Home") return item.values.length ? item.values[0] : item.low;
    if (key === "End") return item.values.length ? item.values[item.values.length - 1] : item.high;
    if (!sign) return undefined;
    if (item.values.length) return item.values[Math.min(item.values.length - 1, Math.max(0, item.values.indexOf(value) + sign))];
    const next = within(item, value + sign * item.step);
    if (!key.startsWith("Page")) return next;
    const far = valueOf(item, positionOf(item, value) + sign / 10);
    return sign * (far - next) > 0 ? far : next;
  }

  // The value of the dragged input at which the dot stands nearest to x: its place grows with the value.
  function draggedTo(spec, formulas, state, x) {
    const { dot } = spec.plot, item = inputOf(spec, dot.drag), at = (value) => evaluate(formulas[dot.x], { ...state, [item.name]: value });
    let low = item.low, high = item.high;
    while (high - low > item.step) {
      const middle = low + Math.floor((high - low) / item.step / 2) * item.step;
      if (at(middle) <= x) low = middle; else high = middle;
    }
    return x - at(low) <= at(high) - x ? low : high;
  }

  function start(spec) {
    const state = {};
    for (const item of spec.inputs) Object.assign(state, Object.keys(item.options).length ? item.options[item.value] : { [item.name]: item.value });
    return state;
  }

  // All that a box says in a state, and all that it shows.
  function told(spec, formulas, state) {
    const outputs = {};
    for (const output of spec.outputs) if (output.show) outputs[output.name] = written(spec, formulas, output, state);
    return { outputs, fits: fits(spec, formulas, state), room: roomSays(spec, formulas, state) };
  }
  function shown(spec, formulas, state, width = WIDTH) {
    const { plot } = spec;
    return {
      ...told(spec, formulas, state), height: HEIGHT,
      drawing: plot ? draw(spec, formulas, state, width) : "", words: plot ? describe(spec, formulas, state) : "",
      rows: plot && plot.rows ? drawRows(state[plot.rows]) : "",
    };
  }

  // Where the dot is, in pixels of the drawing, and the intensity (or what else the axis is) at a pixel.
  function dotAt(spec, formulas, state, width) {
    const { xAt, yAt } = frame(spec, formulas, state, width), [[x, y]] = nowAt(spec, formulas, state);
    return [xAt(x), yAt(y)];
  }
  function axisAt(spec, formulas, state, pixel, width) {
    const { axis } = spec.plot, { left, right } = frame(spec, formulas, state, width), share = (pixel - left) / (right - left);
    return axis.log ? axis.low * (axis.high / axis.low) ** share : axis.low + (axis.high - axis.low) * share;
  }

  root.twophasePlay = { readable, ticks, start, told, shown, positionOf, valueOf, keyed, inputOf, draggedTo, dotAt, axisAt };
})(typeof window === "undefined" ? globalThis : window);
