//! `drover data import`: turns published originals, which are not part of this project, into the traces that experiments read.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::{Args, Subcommand, ValueEnum};

/// `drover data …`.
#[derive(Debug, Subcommand)]
pub enum DataCommand {
    /// Make traces of a published original.
    Import(ImportArgs),
}

/// `drover data import`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  drover data import nasa NASA_access_log_Jul95.gz
  drover experiment autoscaling                      # finds what was imported

nasa: the log of NASA's web server of July 1995 (NASA-HTTP in the Internet Traffic Archive; public domain). Made of it are
  nasa_paperlike_launch20k.csv   20,000 s of 13 July from 08:07:10 on, the mean of the last 60 s
  nasa_paperlike_rpm20k.csv      the first 20,000 minutes of the month, read as seconds
both scaled to a peak of 948.4 requests per second, which four of the paper's pods serve.")]
pub struct ImportArgs {
    /// What the file is.
    #[arg(value_enum)]
    what: Original,
    /// The file, compressed or not.
    file: PathBuf,
    /// Directory for the traces [default: where the experiments look for them, ~/.local/share/drover/traces].
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

/// A published trace that can be imported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Original {
    /// NASA_access_log_Jul95
    Nasa,
}

/// The peak of both traces: the capacity of four pods of the paper.
const PEAK: f64 = 948.4;
/// Length of both traces.
const LENGTH: usize = 20_000;
const DAY: usize = 86_400;
/// The day of the launch, and the second of it with which the trace begins.
const LAUNCH: (usize, usize) = (13, 29_230);
/// Seconds over which the load around the launch is averaged.
const WINDOW: usize = 60;

/// Where traces are looked for unless a directory is given.
pub fn directory() -> PathBuf {
    let base = std::env::var_os("XDG_DATA_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    let home = || PathBuf::from(std::env::var_os("HOME").unwrap_or_default()).join(".local/share");
    base.unwrap_or_else(home).join("drover/traces")
}

/// Converts the original, and writes its traces.
///
/// # Errors
/// The file cannot be read or is not what it should be, or the traces cannot be written.
pub fn run(command: &DataCommand) -> Result<()> {
    let DataCommand::Import(ImportArgs { what: Original::Nasa, file, out }) = command;
    let seconds = open(file).and_then(july).with_context(|| file.display().to_string())?;
    let out = out.clone().unwrap_or_else(directory);
    std::fs::create_dir_all(&out).with_context(|| format!("cannot make {}", out.display()))?;
    for (name, rates) in [("nasa_paperlike_launch20k.csv", launch(&seconds)), ("nasa_paperlike_rpm20k.csv", minutes(&seconds))] {
        let path = out.join(name);
        std::fs::write(&path, csv(&rates)).with_context(|| format!("cannot write {}", path.display()))?;
        eprintln!("{}", path.display());
    }
    Ok(())
}

fn open(file: &Path) -> Result<Box<dyn Read>> {
    let raw = std::fs::File::open(file)?;
    let packed = file.extension().is_some_and(|extension| extension == "gz");
    Ok(if packed { Box::new(flate2::read::MultiGzDecoder::new(raw)) } else { Box::new(raw) })
}

/// Requests in each second of July 1995. The log has some lines that are no requests; more than a few mean that it is another file.
fn july(log: impl Read) -> Result<Vec<u32>> {
    let mut seconds = vec![0_u32; 31 * DAY];
    let (mut good, mut bad) = (0_u64, 0_u64);
    for line in BufReader::with_capacity(1 << 20, log).split(b'\n') {
        let line = line?;
        match second(&line) {
            Some(at) => {
                seconds[at] += 1;
                good += 1;
            }
            None => bad += u64::from(!line.is_empty()),
        }
    }
    if good == 0 || bad > good / 100 {
        bail!("{bad} of {} lines are not requests of July 1995 in Common Log Format", good + bad);
    }
    Ok(seconds)
}

/// The second of the month of a line: `host - - [13/Jul/1995:09:41:05 -0400] "GET …"`.
fn second(line: &[u8]) -> Option<usize> {
    let begin = line.iter().position(|byte| *byte == b'[')? + 1;
    let stamp = std::str::from_utf8(line.get(begin..begin + 20)?).ok()?;
    let (day, rest) = stamp.split_once("/Jul/1995:")?;
    let mut parts = rest.split(':').map(|part| part.parse::<usize>().ok());
    let (hour, minute, second) = (parts.next()??, parts.next()??, parts.next()??);
    let day = day.parse::<usize>().ok().filter(|day| (1..=31).contains(day))?;
    (hour < 24 && minute < 60 && second < 60).then_some((day - 1) * DAY + hour * 3600 + minute * 60 + second)
}

fn launch(seconds: &[u32]) -> Vec<f64> {
    let begin = (LAUNCH.0 - 1) * DAY;
    let mean = |at: usize| {
        let window = &seconds[begin + at + 1 - WINDOW..=begin + at];
        f64::from(window.iter().sum::<u32>()) / WINDOW as f64
    };
    scaled((LAUNCH.1..LAUNCH.1 + LENGTH).map(mean).collect())
}

fn minutes(seconds: &[u32]) -> Vec<f64> {
    scaled(seconds.chunks(60).take(LENGTH).map(|minute| f64::from(minute.iter().sum::<u32>())).collect())
}

fn scaled(rates: Vec<f64>) -> Vec<f64> {
    let highest = rates.iter().copied().fold(f64::MIN_POSITIVE, f64::max);
    rates.into_iter().map(|rate| rate * PEAK / highest).collect()
}

fn csv(rates: &[f64]) -> String {
    let rows = rates.iter().enumerate().map(|(second, rate)| format!("{second},{rate:.2}\n"));
    std::iter::once("t,rps\n".to_owned()).chain(rows).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(stamp: &str) -> String {
        format!("host.example - - [{stamp} -0400] \"GET / HTTP/1.0\" 200 1\n")
    }

    #[test]
    fn seconds_of_the_month_are_counted_and_other_files_refused() {
        assert_eq!(second(line("01/Jul/1995:00:00:01").as_bytes()), Some(1));
        assert_eq!(second(line("13/Jul/1995:09:41:05").as_bytes()), Some(12 * DAY + 9 * 3600 + 41 * 60 + 5));
        for wrong in ["01/Aug/1995:00:00:01", "32/Jul/1995:00:00:01", "01/Jul/1995:24:00:01", "x"] {
            assert_eq!(second(line(wrong).as_bytes()), None, "{wrong}");
        }
        assert!(july(&b"a\nb\n"[..]).unwrap_err().to_string().contains("2 of 2 lines"));
    }

    #[test]
    fn traces_have_the_peak_and_the_means_of_the_last_minute() {
        // A request in every second of the launch's day, and sixty more in one.
        let mut log = String::new();
        for at in 29_000..50_000 {
            let stamp = format!("13/Jul/1995:{:02}:{:02}:{:02}", at / 3600, at / 60 % 60, at % 60);
            log += &line(&stamp).repeat(if at == 40_000 { 61 } else { 1 });
        }
        let seconds = july(log.as_bytes()).unwrap();
        let rates = launch(&seconds);
        assert_eq!((rates.len(), rates[0], rates[40_000 - 29_230]), (LENGTH, PEAK / 2.0, PEAK));
        assert_eq!((rates[40_000 - 29_230 - 1], rates[40_059 - 29_230], rates[40_060 - 29_230]), (PEAK / 2.0, PEAK, PEAK / 2.0));
        let minutes = minutes(&seconds);
        assert_eq!(minutes.len(), LENGTH);
        assert_eq!(csv(&minutes[..2]), "t,rps\n0,0.00\n1,0.00\n");
    }
}
