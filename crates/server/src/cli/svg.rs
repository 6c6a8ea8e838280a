//! Bar charts for design documents, written as SVG by hand: no chart needs more than rectangles and text.

use std::fmt::Write;
use std::path::Path;

use super::exit::{Exit, Failure};

const WIDTH: f64 = 960.0;
const HEIGHT: f64 = 320.0;
/// Room for the title above the bars, labels below, and figures to the left.
const TOP: f64 = 48.0;
const BOTTOM: f64 = 56.0;
const LEFT: f64 = 56.0;
/// With more groups than these only some are named.
const NAMED_MAX: usize = 24;
/// Distinguishable also to those who see few colours (Okabe and Ito).
const COLOURS: [&str; 6] = [
    "#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00",
];

/// Bars in groups, one for each series.
pub(super) struct Chart {
    pub(super) title: String,
    pub(super) groups: Vec<String>,
    pub(super) series: Vec<Series>,
    /// A value that a line is drawn at.
    pub(super) reference: Option<f64>,
}

/// One value for each group, where there is one.
pub(super) struct Series {
    pub(super) name: String,
    pub(super) values: Vec<Option<f64>>,
}

/// Writes charts below each other.
pub(super) fn write(path: &Path, charts: &[Chart]) -> Result<(), Failure> {
    let failed = |error| Failure::new(Exit::Failed, format!("{}: {error}", path.display()));
    std::fs::write(path, draw(charts)).map_err(failed)
}

fn draw(charts: &[Chart]) -> String {
    let height = HEIGHT * charts.len() as f64;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"{WIDTH}\" height=\"{height}\" fill=\"white\"/>\n"
    );
    for (at, chart) in charts.iter().enumerate() {
        writeln!(svg, "<g transform=\"translate(0 {})\">", HEIGHT * at as f64).expect(TAKES_ALL);
        chart.draw(&mut svg);
        svg.push_str("</g>\n");
    }
    svg.push_str("</svg>\n");
    svg
}

const TAKES_ALL: &str = "a string takes everything";

fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

impl Chart {
    fn draw(&self, svg: &mut String) {
        let values = self
            .series
            .iter()
            .flat_map(|series| &series.values)
            .flatten();
        let highest = values
            .copied()
            .chain(self.reference)
            .fold(f64::MIN_POSITIVE, f64::max);
        let height = HEIGHT - TOP - BOTTOM;
        let y = |value: f64| TOP + height * (1.0 - value / highest);
        let base = y(0.0);
        writeln!(
            svg,
            "<text x=\"{LEFT}\" y=\"20\" font-size=\"14\">{}</text>",
            escape(&self.title)
        )
        .expect(TAKES_ALL);
        for value in [0.0, highest] {
            let (x, y) = (LEFT - 6.0, y(value) + 4.0);
            writeln!(
                svg,
                "<text x=\"{x}\" y=\"{y:.1}\" text-anchor=\"end\">{value:.2}</text>"
            )
            .expect(TAKES_ALL);
        }
        self.draw_bars(svg, &y);
        for (at, series) in self.series.iter().enumerate() {
            let (x, colour) = (LEFT + 160.0 * at as f64, COLOURS[at % COLOURS.len()]);
            writeln!(
                svg,
                "<rect x=\"{x}\" y=\"28\" width=\"10\" height=\"10\" fill=\"{colour}\"/>\
                 <text x=\"{}\" y=\"37\">{}</text>",
                x + 14.0,
                escape(&series.name)
            )
            .expect(TAKES_ALL);
        }
        let right = WIDTH - 16.0;
        let mut line = |y: f64, dashes: &str| {
            writeln!(
                svg,
                "<path d=\"M{LEFT} {y:.1}H{right}\" stroke=\"#444\" stroke-dasharray=\"{dashes}\"/>"
            )
            .expect(TAKES_ALL);
        };
        line(base, "none");
        if let Some(reference) = self.reference {
            line(y(reference), "4 3");
        }
    }

    fn draw_bars(&self, svg: &mut String, y: &impl Fn(f64) -> f64) {
        let step = (WIDTH - LEFT - 16.0) / self.groups.len().max(1) as f64;
        let width = step * 0.8 / self.series.len().max(1) as f64;
        let named = self.groups.len().div_ceil(NAMED_MAX).max(1);
        for (group, name) in self.groups.iter().enumerate() {
            let left = LEFT + step * (group as f64 + 0.1);
            for (at, series) in self.series.iter().enumerate() {
                let Some(value) = series.values[group] else {
                    continue;
                };
                let (x, top, colour) = (
                    left + width * at as f64,
                    y(value),
                    COLOURS[at % COLOURS.len()],
                );
                writeln!(
                    svg,
                    "<rect x=\"{x:.1}\" y=\"{top:.1}\" width=\"{width:.1}\" height=\"{:.1}\" \
                     fill=\"{colour}\"><title>{}, {}: {value:.3}</title></rect>",
                    y(0.0) - top,
                    escape(name),
                    escape(&series.name)
                )
                .expect(TAKES_ALL);
            }
            if group % named == 0 {
                let (x, y) = (left + step * 0.4, y(0.0) + 14.0);
                writeln!(
                    svg,
                    "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"end\" \
                     transform=\"rotate(-30 {x:.1} {y:.1})\">{}</text>",
                    escape(name)
                )
                .expect(TAKES_ALL);
            }
        }
    }
}
