//! A plan as an SVG picture: the clusters before on the left and after on the right, the moves as arrows. Pure.

use std::collections::BTreeMap;
use std::fmt::Write;

use drover_api::plans::PlanSubject;
use drover_api::scheduling::Plan;

const WIDTH: usize = 300;
const GAP: usize = 160;
const LINE: usize = 30;

struct Column {
    /// Apps by cluster, each with its CSS class.
    clusters: BTreeMap<String, Vec<(String, &'static str)>>,
}

/// Draws a plan; returns the text of an SVG image.
pub fn draw(plan: &Plan, subject: &PlanSubject) -> String {
    let mut before = Column { clusters: BTreeMap::new() };
    let mut after = Column { clusters: BTreeMap::new() };
    let moves: Vec<_> = plan.waves.iter().flatten().collect();
    for target in plan.targets.iter().chain(moves.iter().flat_map(|m| [&m.from, &m.to])) {
        before.clusters.entry(target.to_string()).or_default();
        after.clusters.entry(target.to_string()).or_default();
    }
    for m in &moves {
        let name = format!("{}/{}", m.dig.composite_app, m.app);
        before.clusters.entry(m.from.to_string()).or_default().push((name.clone(), "app moved"));
        after.clusters.entry(m.to.to_string()).or_default().push((name, "app moved"));
    }
    if let PlanSubject::Newcomer(dig) = subject {
        for app in &plan.newcomer {
            for placement in app.groups.iter().filter_map(|g| g.placement.as_ref()) {
                after
                    .clusters
                    .entry(placement.member.to_string())
                    .or_default()
                    .push((format!("{}/{}", dig.composite_app, app.app), "app new"));
            }
        }
    }
    let stays = plan.candidates.iter().filter(|c| !c.taken);
    for c in stays {
        let name = format!("{}/{}", c.dig.composite_app, c.app);
        for column in [&mut before, &mut after] {
            column.clusters.entry(c.member.to_string()).or_default().push((name.clone(), "app"));
        }
    }

    let mut svg = String::new();
    let (left, height_left) = boxes(&mut svg, &before, 0, "before");
    let (right, height_right) = boxes(&mut svg, &after, WIDTH + GAP, "after");
    for (name, (x, y)) in &left {
        if let Some((to_x, to_y)) = right.get(name).filter(|_| name.1 == "app moved") {
            let (x, middle) = (x + WIDTH - 20, (x + WIDTH + to_x) / 2);
            let _ = write!(
                svg,
                r##"<path class="arrow" marker-end="url(#head)" d="M{x},{y} C{middle},{y} {middle},{to_y} {},{to_y}"/>"##,
                to_x - 6
            );
        }
    }
    let (width, height) = (2 * WIDTH + GAP, height_left.max(height_right));
    format!(
        r##"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" role="img" aria-label="the plan before and after"><defs><marker id="head" markerWidth="7" markerHeight="7" refX="6" refY="3" orient="auto"><path d="M0,0 L6,3 L0,6 z" fill="currentColor"/></marker></defs>{svg}</svg>"##
    )
}

type Places = BTreeMap<(String, &'static str), (usize, usize)>;

/// Draws a column; returns the position of each app and the height of the column in pixels.
fn boxes(svg: &mut String, column: &Column, x: usize, title: &str) -> (Places, usize) {
    let mut places = BTreeMap::new();
    let _ = write!(svg, r#"<text class="dimtext" x="{x}" y="14">{title}</text>"#);
    let mut y = 24;
    for (cluster, apps) in &column.clusters {
        let height = LINE * (apps.len() + 1) + 8;
        let _ = write!(
            svg,
            r#"<rect class="box" x="{x}" y="{y}" width="{WIDTH}" height="{height}" rx="8"/><text x="{}" y="{}">{}</text>"#,
            x + 10,
            y + 20,
            escape(cluster)
        );
        for (at, (app, class)) in apps.iter().enumerate() {
            let top = y + LINE * (at + 1);
            let _ = write!(
                svg,
                r#"<rect class="{class}" x="{}" y="{top}" width="{}" height="24" rx="5"/><text x="{}" y="{}">{}</text>"#,
                x + 10,
                WIDTH - 20,
                x + 18,
                top + 17,
                escape(app)
            );
            places.insert((app.clone(), *class), (x + 10, top + 12));
        }
        y += height + 10;
    }
    (places, y)
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
