//! The instance format: whitespace-separated integers, in the order of the fields below.

/// What machines have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resource {
    /// A process that moves uses it on both machines.
    pub transient: bool,
    /// Cost of one unit above the safety capacity.
    pub weight: i64,
}

/// Where processes run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Machine {
    /// What dependencies are about.
    pub neighborhood: usize,
    /// What spread is about.
    pub location: usize,
    /// By resource.
    pub capacity: Vec<i64>,
    /// By resource; use above it costs.
    pub safety: Vec<i64>,
    /// Of a move from here, by destination.
    pub move_cost: Vec<i64>,
}

/// Processes of a service run on different machines,
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceRules {
    /// in at least so many locations,
    pub spread: usize,
    /// each in a neighbourhood where these services have a process too.
    pub depends_on: Vec<usize>,
}

/// What runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    /// It belongs to.
    pub service: usize,
    /// By resource.
    pub requirement: Vec<i64>,
    /// Of moving it anywhere.
    pub move_cost: i64,
}

/// For each unit of `first` that is free, `target` units of `second` should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Balance {
    /// A resource.
    pub first: usize,
    /// Another.
    pub second: usize,
    /// Their ratio.
    pub target: i64,
    /// Cost of one missing unit.
    pub weight: i64,
}

/// An instance and where its processes run at first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reassignment {
    /// What machines have.
    pub resources: Vec<Resource>,
    /// Where processes run.
    pub machines: Vec<Machine>,
    /// What processes belong to.
    pub services: Vec<ServiceRules>,
    /// What runs.
    pub processes: Vec<Process>,
    /// Ratios of what should be free.
    pub balances: Vec<Balance>,
    /// Weights of the costs of moves: of processes, of the service moved most, between machines.
    pub weights: [i64; 3],
    /// The machine of each process.
    pub initial: Vec<usize>,
}

/// Which of the two files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum File {
    /// Machines, services, processes, costs.
    Model,
    /// Where each process runs.
    Assignment,
}

/// What is wrong with a file, and where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {fault}")]
pub struct ReadError {
    /// The file.
    pub file: File,
    /// From 1; the last one where it ends too early.
    pub line: usize,
    /// What.
    pub fault: Misread,
}

/// What is wrong with a number of a file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Misread {
    /// It is not there.
    #[error("the file ends where {0} should be")]
    Ends(String),
    /// Not a number.
    #[error("{text:?} is no whole number of at least 0; {what} should be here")]
    NoNumber {
        /// As written.
        text: String,
        /// What it should be.
        what: String,
    },
    /// An index that does not exist.
    #[error("{what} is {got}, there are {count}, counted from 0")]
    Index {
        /// Which index.
        what: String,
        /// As written.
        got: usize,
        /// How many there are.
        count: usize,
    },
    /// Something is left.
    #[error("{0} numbers are left after the end of the instance; is this the right file?")]
    Left(usize),
}

/// A number that no public instance comes near, so that sums stay within 64 bits.
const LARGEST: i64 = 1 << 40;

struct Numbers<'t> {
    file: File,
    words: Box<dyn Iterator<Item = (usize, &'t str)> + 't>,
    /// Of the word read last.
    line: usize,
}

impl<'t> Numbers<'t> {
    fn of(file: File, text: &'t str) -> Self {
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
    /// From the texts of a model file and of its assignment file.
    ///
    /// # Errors
    /// [`ReadError`] names the first number that cannot be.
    pub fn read(model: &str, assignment: &str) -> Result<Self, ReadError> {
        let mut n = Numbers::of(File::Model, model);
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

    /// A machine for each process, from the text of an assignment file.
    ///
    /// # Errors
    /// [`ReadError`].
    pub fn read_assignment(&self, text: &str) -> Result<Vec<usize>, ReadError> {
        let mut n = Numbers::of(File::Assignment, text);
        let at = (0..self.processes.len()).map(|_| n.index(self.machines.len(), "the machine of a process")).collect::<Result<_, _>>()?;
        n.end()?;
        Ok(at)
    }
}
