//! Every `drover …` that a page or a help text shows is one that the programs take. Nothing is run here.
//!
//! A command in a code block is complete. In running text it may lack arguments, and `…` stands for what is left out; only in the tables
//! of docs/coming-from.md it is complete too. Words in capitals stand for a value, `[a|b]` for one of several.

use std::path::{Path, PathBuf};

use clap::error::ErrorKind;
use clap::{Command, CommandFactory, Parser};

/// What a line of shell consists of: words, and `;` between commands. Quotes and comments are gone.
fn words(line: &str) -> Vec<String> {
    let (mut found, mut word, mut quote, mut depth) = (Vec::new(), None::<String>, None, 0);
    for c in line.chars() {
        match c {
            _ if quote == Some(c) => quote = None,
            _ if quote.is_some() => word.get_or_insert_default().push(c),
            '\'' | '"' => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            // The output of another command is one word.
            '(' if depth > 0 || word.as_ref().is_some_and(|word| word.ends_with('$')) => depth += 1,
            ')' if depth > 0 => depth -= 1,
            _ if depth > 0 => {}
            '#' if word.is_none() => break,
            ';' | '&' => {
                found.extend(word.take());
                found.push(";".to_owned());
            }
            '|' if word.is_none() => found.push(";".to_owned()),
            _ if c.is_whitespace() => found.extend(word.take()),
            _ => word.get_or_insert_default().push(c),
        }
    }
    found.extend(word);
    found
}

/// The arguments of each `drover` in a line of shell, beginning with that word. A choice gives a command for each of its values.
fn commands(line: &str) -> Vec<Vec<String>> {
    let mut found = Vec::new();
    for command in words(line).split(|word| word == ";") {
        // Before the program there may be a prompt and variables; after `<` and `>` there is a file.
        let mut rest = command.iter().skip_while(|word| *word == "$" || word.contains('=')).peekable();
        // In programs of other languages it is a variable.
        let assigned = command.iter().any(|word| word == "=");
        if assigned || rest.peek().is_none_or(|program| *program != "drover") {
            continue;
        }
        let mut each: Vec<Vec<String>> = vec![Vec::new()];
        while let Some(word) = rest.next() {
            if word.trim_start_matches(|c: char| c.is_ascii_digit()).starts_with(['<', '>']) {
                if word.ends_with(['<', '>']) {
                    rest.next();
                }
                continue;
            }
            let word = word.replace(['[', ']'], "");
            let with = |begun: &Vec<String>| word.split('|').map(|value| [&begun[..], &[value.to_owned()]].concat()).collect::<Vec<_>>();
            each = each.iter().flat_map(with).collect();
        }
        found.append(&mut each);
    }
    found
}

/// A value that the reader has to fill in.
fn stands_for_a_value(word: &str) -> bool {
    let value = word.split(['=', ',']).next_back().unwrap_or_default();
    value.contains(|c: char| c.is_ascii_uppercase()) && value.chars().all(|c| !c.is_ascii_lowercase())
}

/// Whether nothing but names of commands is in it.
fn only_names(words: &[String]) -> bool {
    let lab = drover_lab::cli::Cli::command();
    let known =
        |mut command: Command| words[1..].iter().all(|word| command.find_subcommand(word).cloned().map(|next| command = next).is_some());
    known(drover::cli::Cli::command()) || known(lab)
}

/// Parses a command as the programs do. `partial`: arguments may be missing.
fn parse(command: &[String], partial: bool) -> Result<(), String> {
    let elided = command.iter().any(|word| word.contains('…'));
    let partial = partial || elided || only_names(command);
    let typed: Vec<&String> = command.iter().filter(|word| !word.trim_matches('…').is_empty()).collect();
    let parsed = drover::cli::Cli::try_parse_from(&typed).and_then(|cli| match cli.command.of_lab() {
        Some(_) => drover_lab::cli::Cli::try_parse_from(&typed).map(drop),
        None => Ok(()),
    });
    let Err(error) = parsed else { return Ok(()) };
    let fine = match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => true,
        ErrorKind::MissingRequiredArgument | ErrorKind::MissingSubcommand | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => partial,
        ErrorKind::InvalidValue | ErrorKind::ValueValidation => partial || command.iter().any(|word| stands_for_a_value(word)),
        _ => false,
    };
    if fine { Ok(()) } else { Err(format!("{}: {}", command.join(" "), error.to_string().lines().next().unwrap_or_default())) }
}

/// The errors in a page, and how many commands it shows.
fn errors(page: &str, tables_are_complete: bool) -> (Vec<String>, usize) {
    let (mut errors, mut count, mut fence) = (Vec::new(), 0, None);
    for line in page.replace("\\\n", " ").lines() {
        if let Some(kind) = line.trim_start().strip_prefix("```") {
            fence = if fence.is_some() { None } else { Some(kind.to_owned()) };
            continue;
        }
        let code = match &fence {
            Some(kind) => kind.is_empty() || kind.starts_with("sh"),
            None => line.starts_with("    "),
        };
        let quoted = || line.split('`').skip(1).step_by(2).map(|quoted| quoted.replace("\\|", "|"));
        let shown: Vec<String> = if code {
            vec![line.to_owned()]
        } else if fence.is_none() {
            quoted().collect()
        } else {
            Vec::new()
        };
        let complete = code || (tables_are_complete && line.starts_with('|'));
        for command in shown.iter().flat_map(|line| commands(line)) {
            count += 1;
            errors.extend(parse(&command, !complete).err());
        }
    }
    (errors, count)
}

/// All Markdown pages below a folder of the repository.
fn pages(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        if path.is_dir() && !name.starts_with('.') && name != "target" {
            pages(&path, found);
        } else if name.ends_with(".md") {
            found.push(path);
        }
    }
}

#[test]
fn commands_on_pages_are_taken_by_the_programs() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let (mut files, mut wrong, mut total) = (Vec::new(), Vec::new(), 0);
    pages(&root, &mut files);
    for file in files {
        let text = std::fs::read_to_string(&file).unwrap();
        let (errors, count) = errors(&text, file.ends_with("docs/coming-from.md"));
        let page = file.strip_prefix(&root).unwrap().display();
        wrong.extend(errors.iter().map(|error| format!("{page}: {error}")));
        total += count;
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(total > 150, "only {total} commands were found");
}

#[test]
fn examples_in_help_texts_are_taken_by_the_programs() {
    fn help(command: &Command, text: &mut String) {
        text.extend(command.get_after_help().map(|help| format!("{help}\n")));
        command.get_subcommands().for_each(|command| help(command, text));
    }
    let mut text = String::new();
    help(&drover::cli::Cli::command(), &mut text);
    help(&drover_lab::cli::Cli::command(), &mut text);
    // Three spaces separate an example from what it does.
    let examples: Vec<_> = text.lines().filter_map(|line| line.trim().split("   ").next()).flat_map(commands).collect();
    assert!(examples.len() > 40, "only {} examples were found", examples.len());
    let wrong: Vec<String> = examples.iter().filter_map(|example| parse(example, false).err()).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn commands_that_the_programs_refuse_are_found() {
    let page = |text: &str| errors(text, true).0.len();
    assert_eq!(page("    drover get apps -o wide|json | head  # all\n"), 0);
    assert_eq!(page("    $ DROVER_URL=http://x drover plan apply $(cat id) --wait 2>log && drover get moves >out\n"), 0);
    assert_eq!(
        page("`drover deploy NAME --movable` and `drover plan … --fewest-moves`, see `drover deploy`\n"),
        1,
        "plan has no such flag"
    );
    for wrong in [
        "    drover deploy shop -f shop.yaml --no-such-flag\n",
        "    drover no-such-command\n",
        "    drover deploy shop\n",
        "    drover get apps | drover get nothing\n",
        "```sh\ndrover experiment groups --no-such-flag\n```\n",
        "text `drover autoscale simulate --no-such-flag` text\n",
        "| `drover deploy shop` | a table\n",
    ] {
        assert_eq!(page(wrong), 1, "{wrong}");
    }
}
