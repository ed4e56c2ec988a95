"""``{play}``: sliders, numbers and a plot whose formulas are the package's own, turned into
JavaScript when the book is built. What the first state shows is asked of that JavaScript."""

import html
import json
from collections.abc import Mapping
from typing import Any

import yaml
from book_play_formula import PlayError
from book_play_inputs import Input
from book_play_plot import Plot
from book_play_script import Script
from book_play_spec import Play, read_spec
from docutils import nodes
from docutils.statemachine import StringList
from sphinx.application import Sphinx
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective

logger = logging.getLogger(__name__)
PREFIXED = {"B", "s", "FLOP", "B/s", "FLOP/s", "B/token", "FLOP/token"}  # ticks carry these


def controls(play: Play, box: str, script: Script) -> str:
    """A control for each input, but for the one that the dot drags: the dot is its control."""
    dragged = play.plot.dot.drag if play.plot and play.plot.dot else None
    made = (
        _menu(item, box) if item.options else _slider(item, box, script)
        for item in play.inputs
        if item.name != dragged
    )
    return "".join(made)


def _menu(item: Input, box: str) -> str:
    options = "".join(
        f"<option{' selected' if label == item.value else ''}>{html.escape(label)}</option>"
        for label in item.options
    )
    return (
        '<div class="tp-control"><label'
        f' for="{box}-{item.name}">{html.escape(item.label)}</label><select id="{box}-{item.name}"'
        f' data-input="{item.name}" autocomplete="off">{options}</select><span'
        f' class="tp-value tp-chosen" aria-hidden="true">{html.escape(str(item.value))}</span>'
        "</div>"
    )


def _slider(item: Input, box: str, script: Script) -> str:
    at = script.ask(
        "play.positionOf(play.inputOf(spec, dukpy.n), dukpy.v)", n=item.name, v=item.value
    )
    high, step = (len(item.values) - 1, "1") if item.values else (1, "any")
    text = html.escape(readable(script, item))
    return (
        '<div class="tp-control"><label'
        f' for="{box}-{item.name}">{html.escape(item.label)}</label><input type="range"'
        f' id="{box}-{item.name}" data-input="{item.name}" min="0" max="{high}"'
        f' step="{step}" value="{at:.12g}" aria-valuetext="{text}" autocomplete="off"><span'
        f' class="tp-value" aria-hidden="true">{text}</span></div>'
    )


def readable(script: Script, item: Input) -> str:
    """A slider's first value with its unit."""
    text: str = script.ask("play.readable(dukpy.v, dukpy.u)", v=item.value, u=item.unit)
    return text


def opening(play: Play, box: str, script: Script) -> str:
    """The box up to its caption."""
    shown = script.shown(script.start())
    numbers = "".join(
        f'<div><dt>{html.escape(output.label)}</dt><dd data-output="{output.name}">'
        f"{html.escape(shown['outputs'][output.name])}</dd></div>"
        for output in play.outputs
        if output.show
    )
    room = f'<p class="tp-room">{html.escape(shown["room"])}</p>' if play.room else ""
    made = [
        f'<section class="tp-play{"" if shown["fits"] else " tp-full"}" id="{box}"'
        f' aria-labelledby="{box}-title">',
        (
            f'<p class="tp-play-title" id="{box}-title"><span class="tp-kicker">Play</span>'
            f" {html.escape(play.title)}</p>"
        ),
        f'<div class="tp-controls">{controls(play, box, script)}</div>',
        room,
        f'<dl class="tp-outputs">{numbers}</dl>' if numbers else "",
    ]
    if play.plot:
        made.append(plot_figure(play, play.plot, script, shown))
    return "\n".join(filter(None, made))


def plot_figure(play: Play, plot: Plot, script: Script, shown: Mapping[str, Any]) -> str:
    """The plot of the first state, its legend, and what can be dragged in it."""
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
    rows = (
        f'<div class="tp-rows"><svg viewBox="0 0 320 340" aria-hidden="true">{shown["rows"]}'
        "</svg></div>"
        if plot.rows
        else ""
    )
    drawn = (
        f'<div class="tp-plot"><svg viewBox="0 0 640 {shown["height"]}" role="img"'
        f' aria-label="{html.escape(shown["words"])}">{shown["drawing"]}</svg>'
        f"{_dot(play, plot, script)}</div>"
    )
    plotted = f'<div>{y_label}{drawn}<ul class="tp-legend">{legend}</ul></div>'
    return f'<div class="tp-beside">{rows}{plotted}</div>' if rows else plotted


def _dot(play: Play, plot: Plot, script: Script) -> str:
    """The handle over the dot, a slider without a track."""
    if plot.dot is None:
        return ""
    item = next(item for item in play.inputs if item.name == plot.dot.drag)
    text = html.escape(readable(script, item))
    return (
        f'<span class="tp-dot" role="slider" tabindex="0" data-input="{item.name}"'
        f' aria-label="{html.escape(item.label)}" aria-valuemin="{item.low:g}"'
        f' aria-valuemax="{item.high:g}" aria-valuenow="{item.value:g}" aria-valuetext="{text}">'
        "</span>"
    )


def closing(box: str, script: Script) -> str:
    """The box after its caption: what the page's script needs."""
    spec = script.spec.replace("</", "<\\/")
    return (
        '<div class="tp-quiet" role="status"'
        ' aria-live="polite"></div>\n<script>(window.twophasePlays = window.twophasePlays ||'
        f" []).push({{box: {json.dumps(box)}, spec: {spec}, formulas:"
        f" {script.formulas}}});</script></section>"
    )


class PlayDirective(SphinxDirective):
    required_arguments = 1  # the box's id, unique on its page
    has_content = True

    def run(self) -> list[nodes.Node]:
        box = "play-" + nodes.make_id(self.arguments[0])
        try:
            play = read_spec(yaml.safe_load("\n".join(self.content)))
            script = Script(play)
            first, last = opening(play, box, script), closing(box, script)
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
    app.add_js_file("play_live.js", loading_method="defer")
    return {"parallel_read_safe": True, "parallel_write_safe": True}
