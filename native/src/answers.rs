//! Which requests of which clients each partition has carried out: the table behind `latewood.replica.answers`, which
//! says what it is for.  The rules of what is remembered, and for how long, are here.

use std::collections::{BTreeMap, HashMap, VecDeque};

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};

use crate::checked::{self, Checked};
use crate::commands::Command;

const ID: usize = 16;
const NAME: usize = ID + 8;

type ClientId = [u8; ID];
/// From an index up to before another.
type Run = (u64, u64);
/// As many requests as the last number says, from the first on; each has as many records as the third says, and they are
/// neighbours, from the index on that is the second.
type Stretch = (u64, u64, u64, u64);
/// A client as it is stored: id, highest request, its last time, stretches, and requests that are not in one.
type Stored = (Vec<u8>, u64, u64, Vec<Stretch>, Vec<(u64, Vec<Run>)>);

/// What is remembered of one client.
#[derive(Default)]
struct Client {
    highest: u64,
    last_ns: u64,
    /// The highest request that somebody has begun with, though it may not be carried out.
    begun: u64,
    /// When it was last heard of, counted in commands.
    turn: u64,
    /// What came in order, the lowest request first; the first may be too old.
    stretches: VecDeque<Stretch>,
    /// All runs of the requests that came late, or in pieces: they count, whatever a stretch says.
    odd: BTreeMap<u64, Vec<Run>>,
}

impl Client {
    fn note(&mut self, request: u64, run: Run, window: u64) {
        if request > self.highest {
            self.highest = request;
            self.follow(request, run);
            self.forget(window);
        } else if !self.is_too_old(request, window) {
            let known = self.find(request);
            let runs = self.odd.entry(request).or_insert(known);
            match runs.last_mut() {
                Some(last) if last.1 == run.0 => last.1 = run.1,
                _ => runs.push(run),
            }
        }
    }

    /// Add a request behind all others.
    fn follow(&mut self, request: u64, (start, stop): Run) {
        let each = stop.saturating_sub(start);
        match self.stretches.back_mut() {
            Some((first, begin, of_each, count))
                if (first.wrapping_add(*count), begin.wrapping_add(*count * *of_each), *of_each)
                    == (request, start, each) =>
            {
                *count += 1;
            }
            _ => self.stretches.push_back((request, start, each, 1)),
        }
    }

    /// Forget whatever is too old.
    fn forget(&mut self, window: u64) {
        while self.stretches.front().is_some_and(|(first, _, _, count)| self.is_too_old(first + (count - 1), window)) {
            self.stretches.pop_front();
        }
        while self.odd.first_key_value().is_some_and(|(request, _)| self.is_too_old(*request, window)) {
            self.odd.pop_first();
        }
    }

    /// Whether nobody can tell any more what became of a request.
    const fn is_too_old(&self, request: u64, window: u64) -> bool {
        self.highest.saturating_sub(request) >= window
    }

    fn find(&self, request: u64) -> Vec<Run> {
        if let Some(runs) = self.odd.get(&request) {
            return runs.clone();
        }
        let behind = self.stretches.partition_point(|stretch| stretch.0 <= request);
        let Some(at) = behind.checked_sub(1) else { return Vec::new() };
        let (first, start, each, count) = self.stretches[at];
        let place = request - first;
        if place < count { vec![(start + place * each, start + (place + 1) * each)] } else { Vec::new() }
    }

    /// The stretches without what is too old.
    fn known(&self, window: u64) -> Vec<Stretch> {
        let oldest = self.highest.saturating_sub(window - 1);
        let cut = |&(first, start, each, count): &Stretch| {
            let gone = oldest.saturating_sub(first);
            (first + gone, start + gone * each, each, count - gone)
        };
        self.stretches.iter().map(cut).collect()
    }
}

/// The clients of one partition.
#[derive(Default)]
struct Answers {
    clients: HashMap<ClientId, Client>,
    /// Who was heard of when: the one that was silent longest first.
    order: BTreeMap<u64, ClientId>,
    turn: u64,
    /// Up to which request clients had begun that were forgotten meanwhile: what is on its way is still recognized.
    left: BTreeMap<ClientId, u64>,
}

impl Answers {
    fn hear_of(&mut self, id: ClientId, timestamp_ns: u64) -> &mut Client {
        let left = &mut self.left;
        let anew = || Client { begun: left.remove(&id).unwrap_or(0), ..Client::default() };
        let client = self.clients.entry(id).or_insert_with(anew);
        if client.turn == 0 || client.turn != self.turn {
            self.order.remove(&client.turn);
            self.turn += 1;
            client.turn = self.turn;
            self.order.insert(self.turn, id);
        }
        client.last_ns = client.last_ns.max(timestamp_ns);
        client
    }

    /// Forget a client, but for what it has begun with and nobody has seen done.
    fn leave(&mut self, id: ClientId, bounds: &Bounds) {
        if let Some(client) = self.clients.remove(&id).filter(|client| client.begun > client.highest) {
            self.left.insert(id, client.begun);
            if self.left.len() > bounds.clients {
                self.left.pop_first();
            }
        }
    }

    fn oldest(&self) -> Option<&Client> {
        self.order.first_key_value().and_then(|(_, id)| self.clients.get(id))
    }

    /// Forget clients that have been silent for long, and whoever is beyond the bound: by entries alone.
    fn forget_silent(&mut self, now_ns: u64, bounds: &Bounds) {
        while self.clients.len() > 1 {
            let silent = self.oldest().is_some_and(|oldest| oldest.last_ns.saturating_add(bounds.silent_ns) < now_ns);
            if self.clients.len() <= bounds.clients && !silent {
                return;
            }
            if let Some((_, id)) = self.order.pop_first() {
                self.leave(id, bounds);
            }
        }
    }
}

struct Bounds {
    window: u64,
    clients: usize,
    silent_ns: u64,
}

fn to_id(raw: &[u8]) -> Option<ClientId> {
    raw.try_into().ok()
}

/// The answers of all partitions.
#[pyclass(module = "latewood._native", name = "_AnswerTable")]
pub struct AnswerTable {
    bounds: Bounds,
    partitions: HashMap<u64, Answers>,
}

impl AnswerTable {
    fn client(&self, partition: u64, client_id: &[u8]) -> Option<&Client> {
        self.partitions.get(&partition)?.clients.get(&to_id(client_id)?)
    }

    /// How many clients a partition knows.
    fn client_count(&self, partition: u64) -> usize {
        self.partitions.get(&partition).map_or(0, |answers| answers.clients.len())
    }

    /// Begin with a request if it is later than all that its client has begun or done: what it had begun before.
    pub fn begin(&mut self, partition: u64, client_id: &[u8], request: u64) -> Option<u64> {
        let client = self.client_mut(partition, client_id)?;
        (request > client.highest.max(client.begun)).then(|| std::mem::replace(&mut client.begun, request))
    }

    /// Have a client begun with no more than it had before `begin`.
    pub fn withdraw(&mut self, partition: u64, client_id: &[u8], begun: u64) {
        if let Some(client) = self.client_mut(partition, client_id) {
            client.begun = begun;
        }
    }

    fn client_mut(&mut self, partition: u64, client_id: &[u8]) -> Option<&mut Client> {
        self.partitions.get_mut(&partition)?.clients.get_mut(&to_id(client_id)?)
    }

    fn take(&mut self, partition: u64, name: &[u8], run: Run, timestamp_ns: u64) {
        let Some((id, request)) = name.split_first_chunk::<ID>().filter(|_| name.len() == NAME) else { return };
        let request = u64::from_le_bytes(request.try_into().expect("eight bytes"));
        let answers = self.partitions.entry(partition).or_default();
        answers.hear_of(*id, timestamp_ns).note(request, run, self.bounds.window);
        answers.forget_silent(timestamp_ns, &self.bounds);
    }
}

#[pymethods]
impl AnswerTable {
    /// Remember `window` requests of a client, and of a partition as many clients, each until it is silent for so long.
    #[new]
    fn new(window: u64, clients_max: usize, silent_ns: u64) -> Self {
        Self { bounds: Bounds { window, clients: clients_max, silent_ns }, partitions: HashMap::new() }
    }

    /// Note that records from an index on were appended for a request, which `name` names; other names tell nothing.
    fn note(&mut self, partition: u64, name: &[u8], first: u64, count: u64, timestamp_ns: u64) {
        self.take(partition, name, (first, first.saturating_add(count)), timestamp_ns);
    }

    /// Note all commands of an entry, up to what is none.
    fn note_entry(&mut self, data: &Bound<'_, PyBytes>, version: u8) {
        let mut rest = data.as_bytes();
        while let Some(command) = Command::first(rest, version) {
            if command.writes() {
                let first = command.first_index();
                let run = (first, first.saturating_add(command.count() as u64));
                self.take(command.partition(), command.request(), run, command.timestamp_ns());
            }
            rest = &rest[command.size()..];
        }
    }

    /// Begin with a request if it is later than all that its client has begun or done; say whether it is.
    ///
    /// Of a client that the partition does not know that cannot be said.
    #[pyo3(name = "begin")]
    fn begin_and_tell(&mut self, partition: u64, client_id: &[u8], request: u64) -> bool {
        self.begin(partition, client_id, request).is_some()
    }

    /// The indices of the records that a request has appended; None if it is too old to tell.
    fn find(&self, partition: u64, client_id: &[u8], request: u64) -> PyResult<Checked<Option<Vec<u64>>>> {
        let Some(client) = self.client(partition, client_id) else { return Ok(Checked(Some(Vec::new()))) };
        if client.is_too_old(request, self.bounds.window) {
            return Ok(Checked(None));
        }
        let runs = client.find(request);
        let count = runs.iter().map(|(start, stop)| stop.saturating_sub(*start)).sum::<u64>();
        let mut found = checked::room_for(usize::try_from(count)?)?;
        found.extend(runs.into_iter().flat_map(|(start, stop)| start..stop));
        Ok(Checked(Some(found)))
    }

    /// Whether a partition knows a client.
    fn knows(&self, partition: u64, client_id: &[u8]) -> bool {
        self.client(partition, client_id).is_some()
    }

    /// How many clients a partition knows.
    #[pyo3(name = "client_count")]
    fn count_clients(&self, partition: u64) -> Checked<usize> {
        Checked(self.client_count(partition))
    }

    /// Whether a new client would have to take the place of one that may still ask; `coming` are on their way.
    fn is_full(&self, partition: u64, now_ns: u64, coming: usize) -> bool {
        let silent_since = |oldest: &Client| oldest.last_ns.saturating_add(self.bounds.silent_ns);
        let oldest = self.partitions.get(&partition).and_then(Answers::oldest);
        self.client_count(partition) + coming >= self.bounds.clients
            && oldest.is_none_or(|oldest| now_ns <= silent_since(oldest))
    }

    /// What is known in a partition, to be stored: the client that was silent longest first, requests in their order.
    fn stored<'py>(&self, py: Python<'py>, partition: u64) -> PyResult<Bound<'py, PyList>> {
        let found = checked::empty_list(py)?;
        for id in self.partitions.get(&partition).into_iter().flat_map(|answers| answers.order.values()) {
            if let Some(client) = self.client(partition, id) {
                let odd: Vec<_> = client.odd.iter().map(|(request, runs)| (*request, runs.clone())).collect();
                let known = client.known(self.bounds.window);
                found.append(Checked((checked::bytes(py, id)?, client.highest, client.last_ns, known, odd)))?;
            }
        }
        Ok(found)
    }

    /// Take what was stored of a partition.
    fn restore(&mut self, partition: u64, stored: &Bound<'_, PyAny>) -> PyResult<()> {
        let mut answers = Answers::default();
        for (id, highest, last_ns, stretches, odd) in stored.extract::<Vec<Stored>>()? {
            let Some(id) = to_id(&id) else { continue };
            let client = answers.hear_of(id, last_ns);
            (client.highest, client.stretches, client.odd) = (highest, stretches.into(), odd.into_iter().collect());
        }
        self.partitions.insert(partition, answers);
        Ok(())
    }

    /// Forget a partition.
    fn forget(&mut self, partition: u64) {
        self.partitions.remove(&partition);
    }
}
