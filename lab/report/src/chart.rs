//! Charts, drawn as SVG.

use anyhow::{Result, anyhow};
use plotters::prelude::*;

use crate::Interval;

const SIZE: (u32, u32) = (900, 480);
/// Height of the line below a chart.
const FOOT: u32 = 18;
const PALETTE: [RGBColor; 8] = [
    RGBColor(31, 119, 180),
    RGBColor(214, 39, 40),
    RGBColor(44, 160, 44),
    RGBColor(255, 127, 14),
    RGBColor(148, 103, 189),
    RGBColor(23, 162, 184),
    RGBColor(127, 127, 127),
    RGBColor(188, 189, 34),
];

/// How the points of a series are drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// Points connected by straight lines.
    Line,
    /// Separate dots.
    Dots,
    /// Bars from zero, as wide as the smallest distance between two points allows.
    Bars,
}

/// A named series of points.
#[derive(Debug, Clone, PartialEq)]
pub struct Series {
    /// The name in the legend.
    pub label: String,
    /// Pairs of x and y. Points that are not finite are left out.
    pub points: Vec<(f64, f64)>,
    /// The ends of the error bar of each point. Empty: none is drawn.
    pub errors: Vec<(f64, f64)>,
}

/// A chart with one pair of axes.
#[derive(Debug, Clone, PartialEq)]
pub struct Chart {
    /// The file is `<name>.svg`.
    pub name: String,
    pub title: String,
    /// The label of the axis, with the unit in brackets.
    pub x: String,
    /// The label of the axis, with the unit in brackets.
    pub y: String,
    pub shape: Shape,
    /// In the order in which they are drawn.
    pub series: Vec<Series>,
}

impl Chart {
    /// A chart with lines and no series yet.
    pub fn lines(name: impl Into<String>, title: impl Into<String>, x: impl Into<String>, y: impl Into<String>) -> Self {
        Chart { name: name.into(), title: title.into(), x: x.into(), y: y.into(), shape: Shape::Line, series: Vec::new() }
    }

    /// The same chart with another shape.
    pub fn shape(mut self, shape: Shape) -> Self {
        self.shape = shape;
        self
    }

    /// The same chart with one more series.
    pub fn series(mut self, label: impl Into<String>, points: Vec<(f64, f64)>) -> Self {
        self.series.push(Series { label: label.into(), points, errors: Vec::new() });
        self
    }

    /// The same chart with one more series of means, with their intervals as error bars.
    pub fn intervals(mut self, label: impl Into<String>, points: &[(f64, Interval)]) -> Self {
        let errors = points.iter().map(|(_, interval)| (interval.low, interval.high)).collect();
        let points = points.iter().map(|(x, interval)| (*x, interval.mean)).collect();
        self.series.push(Series { label: label.into(), points, errors });
        self
    }

    /// Draws the chart as SVG. `below`: a line of text below it; empty for none.
    ///
    /// # Errors
    /// When the drawing backend fails, which was never seen with finite points.
    pub fn svg(&self, below: &str) -> Result<String> {
        let mut out = String::new();
        let size = (SIZE.0, SIZE.1 + if below.is_empty() { 0 } else { FOOT });
        let area = SVGBackend::with_string(&mut out, size).into_drawing_area();
        self.draw(&area, below).map_err(|error| anyhow!("chart {}: {error}", self.name))?;
        drop(area);
        Ok(out)
    }

    fn draw(&self, whole: &DrawingArea<SVGBackend<'_>, plotters::coord::Shift>, below: &str) -> Result<(), Box<dyn std::error::Error>> {
        whole.fill(&WHITE)?;
        let (area, foot) = whole.split_vertically(SIZE.1);
        let grey = BLACK.mix(0.7);
        foot.draw_text(below, &("sans-serif", 12).into_font().color(&grey), (12, 2))?;
        let (xs, ys) = self.ranges();
        let (x_from, x_to) = (xs.start, xs.end);
        let mut chart = ChartBuilder::on(&area)
            .caption(&self.title, ("sans-serif", 20))
            .margin(12)
            .x_label_area_size(42)
            .y_label_area_size(68)
            .build_cartesian_2d(xs, ys)?;
        chart.configure_mesh().x_desc(&self.x).y_desc(&self.y).light_line_style(TRANSPARENT).draw()?;
        let bar = self.bar_width(x_to - x_from);
        for (at, series) in self.series.iter().enumerate() {
            let colour = PALETTE[at % PALETTE.len()];
            let points = series.points.iter().copied().filter(finite);
            let drawn = match self.shape {
                Shape::Line => chart.draw_series(LineSeries::new(points, colour.stroke_width(2)))?,
                Shape::Dots => chart.draw_series(points.map(|point| Circle::new(point, 3, colour.filled())))?,
                Shape::Bars => {
                    let width = bar / self.series.len() as f64;
                    let left = width * at as f64 - bar / 2.0;
                    chart.draw_series(points.map(|(x, y)| Rectangle::new([(x + left, 0.0), (x + left + width, y)], colour.filled())))?
                }
            };
            drawn.label(&series.label).legend(move |(x, y)| Rectangle::new([(x, y - 4), (x + 14, y + 4)], colour.filled()));
            let (shift, cap) = match self.shape {
                Shape::Bars => (bar / self.series.len() as f64 * (at as f64 + 0.5) - bar / 2.0, bar / self.series.len() as f64 / 5.0),
                _ => (0.0, (x_to - x_from) / 200.0),
            };
            for ((x, _), (low, high)) in series.points.iter().zip(&series.errors).filter(|(point, ends)| finite(point) && finite(ends)) {
                let x = x + shift;
                let line = [(x - cap, *low), (x + cap, *low), (x, *low), (x, *high), (x - cap, *high), (x + cap, *high)];
                chart.draw_series([PathElement::new(line, BLACK)])?;
            }
        }
        // Most of what is drawn here grows to the right.
        let place = SeriesLabelPosition::UpperLeft;
        chart.configure_series_labels().position(place).background_style(WHITE.mix(0.8)).border_style(BLACK.mix(0.3)).draw()?;
        whole.present()?;
        Ok(())
    }

    /// The ranges of the axes: they include every finite point, and the y axis begins at zero unless a value is negative.
    fn ranges(&self) -> (std::ops::Range<f64>, std::ops::Range<f64>) {
        let points = || self.series.iter().flat_map(|series| series.points.iter().copied()).filter(finite);
        let errors = self.series.iter().flat_map(|series| series.errors.iter().copied()).filter(finite);
        let shown: Vec<(f64, f64)> = points().chain(errors.flat_map(|(low, high)| [(f64::NAN, low), (f64::NAN, high)])).collect();
        let ends = |of: fn((f64, f64)) -> f64| {
            let values = shown.iter().copied().map(of).filter(|value| value.is_finite());
            values.fold(None, |ends: Option<(f64, f64)>, v| Some(ends.map_or((v, v), |(low, high)| (low.min(v), high.max(v)))))
        };
        let span = |low: f64, high: f64| if low < high { low..high } else { low - 0.5..low + 0.5 };
        let (left, right) = ends(|point| point.0).unwrap_or((0.0, 1.0));
        let (low, high) = ends(|point| point.1).unwrap_or((0.0, 1.0));
        let margin = if self.shape == Shape::Bars { self.bar_width(right - left) } else { 0.0 };
        (span(left - margin, right + margin), span(low.min(0.0), high.max(0.0) * 1.05))
    }

    /// The width of a bar: eight tenths of the smallest distance between two x values, or of the whole span if there is only one.
    fn bar_width(&self, span: f64) -> f64 {
        let mut xs: Vec<f64> = self.series.iter().flat_map(|series| &series.points).map(|point| point.0).collect();
        xs.sort_by(f64::total_cmp);
        let step = xs.windows(2).map(|pair| pair[1] - pair[0]).filter(|step| *step > 0.0).reduce(f64::min);
        0.8 * step.unwrap_or(if span > 0.0 { span } else { 1.0 })
    }
}

fn finite(point: &(f64, f64)) -> bool {
    point.0.is_finite() && point.1.is_finite()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn svg_draws_all_series_in_every_shape() {
        for shape in [Shape::Line, Shape::Dots, Shape::Bars] {
            let chart = Chart::lines("cost", "Cost & time", "time [s]", "cost").shape(shape);
            let svg = chart
                .series("hpa", vec![(0.0, 1.0), (1.0, 3.0)])
                .series("rl", vec![(0.0, 2.0), (f64::NAN, 1.0), (1.0, 1.5)])
                .svg("2 × EPYC; load before: 0.1")
                .unwrap_or_default();
            for part in ["<svg", "Cost &amp; time", "2 × EPYC; load before: 0.1", "time [s]", "hpa", "rl", "#1F77B4", "#D62728"] {
                assert!(svg.contains(part), "{shape:?} without {part}: {svg}");
            }
        }
    }

    #[test]
    fn svg_draws_an_error_bar_for_each_interval() {
        let interval = |mean, low, high| Interval { mean, low, high };
        let points = [(5.0, interval(0.3, 0.1, 0.5)), (10.0, interval(0.6, 0.4, 0.6))];
        for shape in [Shape::Line, Shape::Bars] {
            let chart = Chart::lines("a", "a", "x", "y").shape(shape);
            let lines = |chart: &Chart| chart.svg("").unwrap_or_default().matches("<polyline").count();
            let plain = chart.clone().series("one", points.iter().map(|(x, interval)| (*x, interval.mean)).collect());
            assert_eq!(lines(&chart.intervals("one", &points)), lines(&plain) + points.len(), "{shape:?}");
        }
    }

    #[test]
    fn axes_reach_the_ends_of_error_bars() {
        let chart = Chart::lines("a", "a", "x", "y").intervals("one", &[(1.0, Interval { mean: 1.0, low: -1.0, high: 2.0 })]);
        assert_eq!(chart.ranges(), (0.5..1.5, -1.0..2.1));
    }

    #[test]
    fn svg_draws_an_empty_chart_and_a_single_point() {
        assert!(Chart::lines("a", "a", "x", "y").svg("").is_ok());
        assert!(Chart::lines("a", "a", "x", "y").shape(Shape::Bars).series("one", vec![(3.0, 0.0)]).svg("").is_ok());
    }
}
