"""``{play}``: sliders, numbers and a plot whose formulas are the package's own, turned into
JavaScript when the book is built."""

import html
import json
import math
from collections.abc import Mapping
from typing import Any

import yaml
from book_play_formula import Input, Play, PlayError, javascript, number, read_spec
from book_play_plot import HEIGHT, PREFIXED, WIDTH, describe, draw, readable
from docutils import nodes
from docutils.statemachine import StringList
from sphinx.application import Sphinx
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective

logger = logging.getLogger(__name__)
NOTCHES = 200  # positions of a slider on a log scale


def controls(play: Play, box: str) -> str:
    return "".join(_menu(item, box) if item.options else _slider(item, box) for item in play.inputs)


def _menu(item: Input, box: str) -> str:
    options = "".join(
        f"<option{' selected' if label == item.value else ''}>{html.escape(label)}</option>"
        for label in item.options
    )
    return (
        '<div class="tp-control"><label'
        f' for="{box}-{item.name}">{html.escape(item.label)}</label><select id="{box}-{item.name}"'
        f' data-input="{item.name}" autocomplete="off">{options}</select></div>'
    )


def _slider(item: Input, box: str) -> str:
    if item.values:
        low, high, at, step = (
            0.0,
            len(item.values) - 1.0,
            float(item.values.index(float(item.value))),
            1.0,
        )
    elif item.log:
        low, high, step = 0.0, float(NOTCHES), 1.0
        at = round(
            NOTCHES * math.log(float(item.value) / item.low) / math.log(item.high / item.low)
        )
    else:
        low, high, at = item.low, item.high, float(item.value)
        step = item.step or (high - low) / 100
    text = html.escape(readable(float(item.value), item.unit))
    return (
        '<div class="tp-control"><label'
        f' for="{box}-{item.name}">{html.escape(item.label)}</label><input type="range"'
        f' id="{box}-{item.name}" data-input="{item.name}" min="{low:.12g}" max="{high:.12g}"'
        f' step="{step:.12g}" value="{at:.12g}" aria-valuetext="{text}" autocomplete="off"><span'
        f' class="tp-value" aria-hidden="true">{text}</span></div>'
    )


def page_spec(play: Play) -> dict[str, Any]:
    """What play.js needs to know, without the formulas."""
    inputs = [
        {
            "name": item.name,
            "label": item.label,
            "unit": item.unit,
            "low": item.low,
            "high": item.high,
            "value": item.value,
            "log": item.log,
            "step": item.step,
            "values": list(item.values),
            "options": {k: dict(v) for k, v in item.options.items()},
        }
        for item in play.inputs
    ]
    outputs = [
        {"name": item.name, "label": item.label, "unit": item.unit, "digits": item.digits}
        for item in play.outputs
    ]
    plot = None
    if play.plot:
        plot = {
            "x": play.plot.x,
            "curves": list(play.plot.curves),
            "logX": play.plot.log_x,
            "logY": play.plot.log_y,
            "unit": play.plot.unit,
            "low": play.plot.low,
            "high": play.plot.high,
            "marks": [{"axis": mark.axis, "label": mark.label} for mark in play.plot.marks],
        }
    return {"inputs": inputs, "outputs": outputs, "plot": plot}


def formulas(play: Play) -> str:
    """The formulas as a JavaScript object of functions of the state ``v``; marks are called mark0,
    mark1, …"""
    pairs = [(output.name, output.expr) for output in play.outputs]
    pairs += [
        (f"mark{index}", mark.expr)
        for index, mark in enumerate(play.plot.marks if play.plot else ())
    ]
    return (
        "{"
        + ", ".join(f"{json.dumps(name)}: (v) => {javascript(expr)}" for name, expr in pairs)
        + "}"
    )


def opening(play: Play, box: str) -> str:
    """The box up to its caption."""
    state = play.start()
    shown = "".join(
        f'<div><dt>{html.escape(output.label)}</dt><dd data-output="{output.name}">'
        f"{readable(number(output.expr, state), output.unit, output.digits)}</dd></div>"
        for output in play.outputs
        if output.show
    )
    made = [
        f'<section class="tp-play" id="{box}" aria-labelledby="{box}-title">',
        (
            f'<p class="tp-play-title" id="{box}-title"><span class="tp-kicker">Play</span>'
            f" {html.escape(play.title)}</p>"
        ),
        f'<div class="tp-controls">{controls(play, box)}</div>',
        f'<dl class="tp-outputs">{shown}</dl>' if shown else "",
    ]
    if play.plot:
        made.append(plot_figure(play, state))
    return "\n".join(filter(None, made))


def plot_figure(play: Play, state: Mapping[str, float]) -> str:
    plot = play.plot
    assert plot is not None
    labels = {output.name: output.label for output in play.outputs}
    legend = "".join(
        '<li><svg width="34" height="10" aria-hidden="true">'
        f'<line class="tp-curve tp-c{index}" x1="1" x2="33" y1="5" y2="5"/></svg> '
        f"{html.escape(labels[name])}</li>"
        for index, name in enumerate(plot.curves)
    )
    unit = f" ({plot.unit})" if plot.unit and plot.unit not in PREFIXED else ""
    y_label = (
        f'<p class="tp-y-label" aria-hidden="true">{html.escape(plot.y_label + unit)}</p>'
        if plot.y_label
        else ""
    )
    return (
        f'{y_label}<div class="tp-plot"><svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img"'
        f' aria-label="{html.escape(describe(play, state))}">{draw(play, state)}</svg></div><ul'
        f' class="tp-legend">{legend}</ul>'
    )


def closing(play: Play, box: str) -> str:
    spec = json.dumps(page_spec(play), ensure_ascii=False).replace("</", "<\\/")
    return (
        '<div class="tp-quiet" role="status"'
        ' aria-live="polite"></div>\n<script>(window.twophasePlays = window.twophasePlays ||'
        f" []).push({{box: {json.dumps(box)}, spec: {spec}, formulas:"
        f" {formulas(play)}}});</script></section>"
    )


class PlayDirective(SphinxDirective):
    required_arguments = 1  # the box's id, unique on its page
    has_content = True

    def run(self) -> list[nodes.Node]:
        box = "play-" + nodes.make_id(self.arguments[0])
        try:
            play = read_spec(yaml.safe_load("\n".join(self.content)))
            first, last = opening(play, box), closing(play, box)
        except PlayError as error:
            logger.warning(
                "play %s: %s", self.arguments[0], error, location=self.get_location(), type="play"
            )
            return []
        except yaml.YAMLError as error:
            logger.warning(
                "play %s: this is not YAML: %s",
                self.arguments[0],
                error,
                location=self.get_location(),
                type="play",
            )
            return []
        made: list[nodes.Node] = [nodes.raw("", first, format="html")]
        if play.caption:
            caption = nodes.container(classes=["tp-caption"])
            source = self.get_source_info()[0]
            self.state.nested_parse(
                StringList(play.caption.split("\n"), source), self.content_offset, caption
            )
            made.append(caption)
        made.append(nodes.raw("", last, format="html"))
        return made


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_directive("play", PlayDirective)
    app.add_js_file("play.js", loading_method="defer")
    return {"parallel_read_safe": True, "parallel_write_safe": True}
