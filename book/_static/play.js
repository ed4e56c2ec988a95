// {play} boxes: the twin of book/_ext/book_play_plot.py. The formulas arrive as functions made from the package's own.
(function (root) {
  "use strict";
  const PREFIXED = new Set(["B", "s", "FLOP", "B/s", "FLOP/s", "B/token", "FLOP/token"]);
  const PREFIXES = [[1e15, "P"], [1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"], [1, ""], [1e-3, "m"], [1e-6, "µ"], [1e-9, "n"]];
  const LEFT = 68, RIGHT = 18, TOP = 14, BOTTOM = 46, HEIGHT = 340, SAMPLES = 121, NOTCHES = 200;
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
      return `${significant(value / 10 ** exponent, digits)}×10${superscript(exponent)}${after}`;
    }
    if (Math.abs(value) >= 1000) return String(Math.floor(value + 0.5)).replace(/\B(?=(\d{3})+$)/g, ",") + after;
    return significant(value, digits) + after;
  }

  function ticks(low, high, log) {
    if (log) {
      const first = Math.floor(Math.log10(low)), last = Math.ceil(Math.log10(high)), decades = Math.log10(high / low);
      const steps = decades < 3 ? [1, 2, 5] : [1], skip = Math.max(1, Math.ceil(decades / 7)), made = [];
      for (let power = first; power <= last; power++) if ((power - first) % skip === 0) for (const step of steps) made.push(step * 10 ** power);
      return made.filter((tick) => low * (1 - 1e-9) <= tick && tick <= high * (1 + 1e-9));
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

  function draw(spec, formulas, state, width) {
    const plot = spec.plot, slider = spec.inputs.find((item) => item.name === plot.x);
    const xs = Array.from({ length: SAMPLES }, (_, i) => plot.logX ? slider.low * (slider.high / slider.low) ** (i / (SAMPLES - 1))
      : slider.low + (slider.high - slider.low) * i / (SAMPLES - 1));
    const curves = plot.curves.map((name) => xs.map((x) => evaluate(formulas[name], { ...state, [plot.x]: x })));
    const [low, high] = span(curves.flat(), plot.logY, plot.low, plot.high), right = width - RIGHT, bottom = HEIGHT - BOTTOM;
    const xAt = (v) => place(v, slider.low, slider.high, plot.logX, LEFT, right), yAt = (v) => place(v, low, high, plot.logY, bottom, TOP);
    let made = `<rect class="tp-frame" x="${LEFT}" y="${TOP}" width="${right - LEFT}" height="${bottom - TOP}"/>`;
    for (const tick of ticks(low, high, plot.logY)) {
      const y = fixed(yAt(tick));
      made += `<line class="tp-grid" x1="${LEFT}" x2="${right}" y1="${y}" y2="${y}"/>`
        + `<text class="tp-tick" x="${LEFT - 8}" y="${y}" dy="4" text-anchor="end">${readable(tick, plot.unit)}</text>`;
    }
    let lastX = -Infinity;
    for (const tick of ticks(slider.low, slider.high, plot.logX)) {
      const at = xAt(tick), x = fixed(at);
      made += `<line class="tp-grid" x1="${x}" x2="${x}" y1="${TOP}" y2="${bottom}"/>`;
      if (at - lastX < 44) continue;
      lastX = at;
      made += `<text class="tp-tick" x="${x}" y="${bottom + 18}" text-anchor="middle">${readable(tick, PREFIXED.has(slider.unit) ? slider.unit : "")}</text>`;
    }
    const unit = slider.unit && !PREFIXED.has(slider.unit) ? ` (${slider.unit})` : "";
    made += `<text class="tp-axis" x="${fixed((LEFT + right) / 2)}" y="${HEIGHT - 6}" text-anchor="middle">${escape(slider.label + unit)}</text>`;
    plot.marks.forEach((mark, index) => {
      const value = evaluate(formulas["mark" + index], state), across = mark.axis === "x";
      const [from, to] = across ? [slider.low, slider.high] : [low, high];
      if (!(from <= value && value <= to)) return;
      const at = across ? xAt(value) : yAt(value), label = escape(mark.label);
      if (across) {
        const late = at > (LEFT + right) / 2;
        made += `<line class="tp-mark" x1="${fixed(at)}" x2="${fixed(at)}" y1="${TOP}" y2="${bottom}"/>`
          + `<text class="tp-mark-label" x="${fixed(at + (late ? -6 : 6))}" y="${TOP + 14}" text-anchor="${late ? "end" : "start"}">${label}</text>`;
      } else {
        made += `<line class="tp-mark" x1="${LEFT}" x2="${right}" y1="${fixed(at)}" y2="${fixed(at)}"/>`
          + `<text class="tp-mark-label" x="${right - 6}" y="${fixed(at - 6)}" text-anchor="end">${label}</text>`;
      }
    });
    curves.forEach((curve, index) => {
      let d = "", up = true;
      curve.forEach((y, i) => {
        if (!Number.isFinite(y) || (plot.logY && y <= 0) || y > high || y < low) { up = true; return; }
        d += (up ? "M" : "L") + fixed(xAt(xs[i])) + " " + fixed(yAt(y));
        up = false;
      });
      made += `<path class="tp-curve tp-c${index}" d="${d}"/>`;
    });
    plot.curves.forEach((name, index) => {
      const y = evaluate(formulas[name], state);
      if (Number.isFinite(y) && low <= y && y <= high) made += `<circle class="tp-now tp-c${index}" cx="${fixed(xAt(state[plot.x]))}" cy="${fixed(yAt(y))}" r="5"/>`;
    });
    return made;
  }

  function describe(spec, formulas, state) {
    const plot = spec.plot, slider = spec.inputs.find((item) => item.name === plot.x), outputs = Object.fromEntries(spec.outputs.map((o) => [o.name, o]));
    const said = plot.curves.map((name) => `${outputs[name].label} ${readable(evaluate(formulas[name], state), plot.unit, outputs[name].digits)}`)
      .concat(plot.marks.map((mark, i) => `${mark.label} at ${readable(evaluate(formulas["mark" + i], state), mark.axis === "x" ? slider.unit : plot.unit)}`));
    return `Line plot over ${slider.label}, from ${readable(slider.low, slider.unit)} to ${readable(slider.high, slider.unit)}. `
      + `At ${readable(state[plot.x], slider.unit)}: ${said.join(", ")}.`;
  }

  // The number a control stands for.
  function valueOf(item, position) {
    if (item.values.length) return item.values[Math.round(position)];
    if (!item.log) return position;
    const raw = item.low * (item.high / item.low) ** (position / NOTCHES);
    if (position <= 0) return item.low;
    if (position >= NOTCHES) return item.high;
    return item.step ? Math.max(item.low, Math.round(raw / item.step) * item.step) : Number(raw.toPrecision(3));
  }

  function live({ box, spec, formulas }) {
    const section = document.getElementById(box), svg = section.querySelector(".tp-plot svg"), quiet = section.querySelector(".tp-quiet");
    const state = {};
    for (const item of spec.inputs) Object.assign(state, Object.keys(item.options).length ? item.options[item.value] : { [item.name]: item.value });

    function show() {
      for (const output of spec.outputs) {
        const cell = section.querySelector(`[data-output="${output.name}"]`);
        if (cell) cell.textContent = readable(evaluate(formulas[output.name], state), output.unit, output.digits);
      }
      if (!svg) return;
      const width = Math.max(320, Math.round(svg.parentElement.clientWidth) || 640);
      svg.setAttribute("viewBox", `0 0 ${width} ${HEIGHT}`);
      svg.innerHTML = draw(spec, formulas, state, width);
      svg.setAttribute("aria-label", describe(spec, formulas, state));
    }
    for (const control of section.querySelectorAll("[data-input]")) {
      const item = spec.inputs.find((one) => one.name === control.dataset.input);
      control.addEventListener("input", () => {
        if (control.tagName === "SELECT") Object.assign(state, item.options[control.value]);
        else {
          state[item.name] = valueOf(item, Number(control.value));
          const text = readable(state[item.name], item.unit);
          control.setAttribute("aria-valuetext", text);
          control.nextElementSibling.textContent = text;
        }
        show();
      });
      control.addEventListener("change", () => {
        quiet.textContent = spec.outputs.filter((o) => section.querySelector(`[data-output="${o.name}"]`))
          .map((o) => `${o.label} ${readable(evaluate(formulas[o.name], state), o.unit, o.digits)}`).join(", ");
      });
    }
    section.classList.add("tp-live");
    show();
    if (svg && "ResizeObserver" in root) new ResizeObserver(show).observe(svg.parentElement);
  }

  root.twophasePlay = { readable, ticks, draw, describe, live };
  if (typeof document !== "undefined") for (const play of root.twophasePlays || []) live(play);
})(typeof window === "undefined" ? globalThis : window);
