//! The reader of the instance format: whitespace-separated integers in the order of the fields below.

/// A resource of the machines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resource {
    /// Whether a process that moves uses the resource on both machines.
    pub transient: bool,
    /// Cost of each unit above the safety capacity.
    pub weight: i64,
}

/// A machine, which runs processes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Machine {
    pub neighborhood: usize,
    pub location: usize,
    pub capacity: Vec<i64>,
    /// By resource. Use above it has a cost.
    pub safety: Vec<i64>,
    /// Cost of a move from this machine, by destination.
    pub move_cost: Vec<i64>,
}

/// The rules of a service. Its processes must run on different machines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceRules {
    /// The processes run in at least this many locations.
    pub spread: usize,
    /// Each process runs in a neighbourhood in which these services have a process too.
    pub depends_on: Vec<usize>,
}

/// A process, which is assigned to a machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    /// The service that it belongs to.
    pub service: usize,
    pub requirement: Vec<i64>,
    /// Cost of moving the process.
    pub move_cost: i64,
}

/// A balance rule: for each free unit of `first` there should be `target` free units of `second`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Balance {
    pub first: usize,
    pub second: usize,
    /// Free units of `second` per free unit of `first`.
    pub target: i64,
    /// Cost of each missing unit.
    pub weight: i64,
}

/// An instance with its initial assignment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reassignment {
    pub resources: Vec<Resource>,
    pub machines: Vec<Machine>,
    pub services: Vec<ServiceRules>,
    pub processes: Vec<Process>,
    pub balances: Vec<Balance>,
    /// Weights of the costs of moves: of processes, of the service that moves most, and between machines.
    pub weights: [i64; 3],
    /// The initial machine of each process.
    pub initial: Vec<usize>,
}

/// Which of the two input files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InputFile {
    /// The model: machines, services, processes, costs.
    Model,
    /// The assignment: the machine of each process.
    Assignment,
}

/// An error in an input file, with its line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {fault}")]
pub struct ReadError {
    pub file: InputFile,
    /// Line number from 1; the last line if the file ends too early.
    pub line: usize,
    pub fault: Misread,
}

/// What is wrong in an input file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Misread {
    /// A number is missing.
    #[error("the file ends where {0} should be")]
    Ends(String),
    /// A word is no whole number of at least 0.
    #[error("{text:?} is no whole number of at least 0; {what} should be here")]
    NoNumber {
        /// As written in the file.
        text: String,
        /// The expected number, in words.
        what: String,
    },
    /// An index is too large.
    #[error("{what} is {got}, there are {count}, counted from 0")]
    Index {
        /// The index, in words.
        what: String,
        /// As written in the file.
        got: usize,
        /// How many there are; indices are counted from 0.
        count: usize,
    },
    /// Numbers follow after the end of the instance.
    #[error("{0} numbers are left after the end of the instance; is this the right file?")]
    Left(usize),
}

/// The largest number that is accepted, so that sums stay within 64 bits; no public instance comes near it.
const LARGEST: i64 = 1 << 40;

struct Numbers<'t> {
    file: InputFile,
    words: Box<dyn Iterator<Item = (usize, &'t str)> + 't>,
    /// Line of the word that was read last.
    line: usize,
}

impl<'t> Numbers<'t> {
    fn of(file: InputFile, text: &'t str) -> Self {
        let words = text.lines().enumerate().flat_map(|(at, line)| line.split_whitespace().map(move |word| (at + 1, word)));
        Self { file, words: Box::new(words), line: 1 }
    }

    fn wrong(&self, fault: Misread) -> ReadError {
        ReadError { file: self.file, line: self.line, fault }
    }

    fn next(&mut self, what: &str) -> Result<i64, ReadError> {
        let Some((line, text)) = self.words.next() else { return Err(self.wrong(Misread::Ends(what.to_owned()))) };
        self.line = line;
        let number = text.parse().ok().filter(|n| (0..=LARGEST).contains(n));
        number.ok_or_else(|| self.wrong(Misread::NoNumber { text: text.to_owned(), what: what.to_owned() }))
    }

    fn count(&mut self, what: &str) -> Result<usize, ReadError> {
        Ok(usize::try_from(self.next(what)?).unwrap_or(usize::MAX))
    }

    fn many(&mut self, n: usize, what: &str) -> Result<Vec<i64>, ReadError> {
        (0..n).map(|_| self.next(what)).collect()
    }

    fn index(&mut self, count: usize, what: &str) -> Result<usize, ReadError> {
        let got = self.count(what)?;
        if got < count { Ok(got) } else { Err(self.wrong(Misread::Index { what: what.to_owned(), got, count })) }
    }

    fn end(mut self) -> Result<(), ReadError> {
        let Some((line, _)) = self.words.next() else { return Ok(()) };
        self.line = line;
        let left = 1 + self.words.by_ref().count();
        Err(self.wrong(Misread::Left(left)))
    }
}

impl Reassignment {
    /// Reads an instance from the contents of a model file and of its assignment file.
    ///
    /// # Errors
    /// When a file has a wrong, missing or surplus number; [`ReadError`] names the first one.
    pub fn read(model: &str, assignment: &str) -> Result<Self, ReadError> {
        let mut n = Numbers::of(InputFile::Model, model);
        let mut resources = Vec::new();
        for _ in 0..n.count("the number of resources")? {
            resources.push(Resource { transient: n.next("whether a resource is transient")? != 0, weight: n.next("a load cost weight")? });
        }
        let r = resources.len();
        let count = n.count("the number of machines")?;
        let mut machines = Vec::new();
        for _ in 0..count {
            machines.push(Machine {
                neighborhood: n.count("a neighborhood")?,
                location: n.count("a location")?,
                capacity: n.many(r, "a capacity")?,
                safety: n.many(r, "a safety capacity")?,
                move_cost: n.many(count, "a machine move cost")?,
            });
        }
        let count = n.count("the number of services")?;
        let mut services = Vec::new();
        for _ in 0..count {
            let spread = n.count("a spread minimum")?;
            let depends_on = (0..n.count("a number of dependencies")?).map(|_| n.index(count, "a dependency")).collect::<Result<_, _>>()?;
            services.push(ServiceRules { spread, depends_on });
        }
        let mut processes = Vec::new();
        for _ in 0..n.count("the number of processes")? {
            processes.push(Process {
                service: n.index(services.len(), "the service of a process")?,
                requirement: n.many(r, "a requirement")?,
                move_cost: n.next("a process move cost")?,
            });
        }
        let mut balances = Vec::new();
        for _ in 0..n.count("the number of balance costs")? {
            balances.push(Balance {
                first: n.index(r, "the first resource of a balance cost")?,
                second: n.index(r, "the second resource of a balance cost")?,
                target: n.next("a balance target")?,
                weight: n.next("a balance weight")?,
            });
        }
        let weights = [n.next("the process move weight")?, n.next("the service move weight")?, n.next("the machine move weight")?];
        n.end()?;
        let mut read = Self { resources, machines, services, processes, balances, weights, initial: Vec::new() };
        read.initial = read.read_assignment(assignment)?;
        Ok(read)
    }

    /// Reads the machine of each process from the content of an assignment file.
    ///
    /// # Errors
    /// When the file has a wrong, missing or surplus number; [`ReadError`] names the first one.
    pub fn read_assignment(&self, text: &str) -> Result<Vec<usize>, ReadError> {
        let mut n = Numbers::of(InputFile::Assignment, text);
        let at = (0..self.processes.len()).map(|_| n.index(self.machines.len(), "the machine of a process")).collect::<Result<_, _>>()?;
        n.end()?;
        Ok(at)
    }
}
