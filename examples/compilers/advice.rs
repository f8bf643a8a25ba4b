//! Asks a policy for a decision over a server's Unix socket, by proto/SOCKET.md and Rust's standard library alone:
//!
//!     rustc --edition 2021 -O -o advice advice.rs
//!     ./advice policybridge.sock POLICY decision:int64_t:1=0 cost:int64_t:1=12 weights:float:2x2=1,0,0.5,2
//!
//! The advice, then the features, each as NAME:TYPE:SHAPE=ELEMENTS. A scalar has an empty SHAPE; at most one dimension
//! is -1. The elements of the advice are the compiler's own decision, which stands where there is no advice; without
//! them the program fails then.
#![forbid(unsafe_code)]
use std::io::{BufRead, BufReader, Read, Write};
use std::{env, error::Error, os::unix::net::UnixStream, process::exit, time::Duration};

type Fallible<T> = Result<T, Box<dyn Error>>;

/// Defines what depends on the element type: the size in bytes, the bytes of a written element, and the way back.
/// Elements of the types that are not listed, bytes and string, have no common size.
macro_rules! element_types {
    ($($name:literal $number:ty),*) => {
        fn size(kind: &str) -> Option<u64> {
            match kind { $($name => Some(std::mem::size_of::<$number>() as u64),)* _ => None }
        }
        fn encode(kind: &str, text: &str) -> Fallible<Vec<u8>> {
            Ok(match kind { $($name => text.parse::<$number>()?.to_le_bytes().to_vec(),)* _ => text.into() })
        }
        fn decode(kind: &str, bytes: Vec<u8>) -> Fallible<String> {
            Ok(match kind {
                $($name => <$number>::from_le_bytes(bytes.as_slice().try_into()?).to_string(),)*
                _ => String::from_utf8(bytes)?,
            })
        }
    };
}
element_types!("float" f32, "double" f64, "int8_t" i8, "uint8_t" u8, "int16_t" i16, "uint16_t" u16, "int32_t" i32,
    "uint32_t" u32, "int64_t" i64, "uint64_t" u64, "bool" u8);

struct Tensor {
    name: String,
    kind: String,
    shape: Vec<i64>,
    elements: Option<Vec<String>>,
}

impl Tensor {
    fn parse(text: &str) -> Fallible<Tensor> {
        let (spec, elements) = text.split_once('=').map_or((text, None), |(spec, list)| (spec, Some(list)));
        let parts: Vec<&str> = spec.split(':').collect();
        let [name, kind, shape]: [&str; 3] = parts.try_into().map_err(|_| format!("{text} is not NAME:TYPE:SHAPE"))?;
        let shape = shape.split('x').filter(|size| !size.is_empty()).map(str::parse).collect::<Result<_, _>>()?;
        let elements = elements.map(|list| list.split_terminator(',').map(String::from).collect());
        Ok(Tensor { name: name.into(), kind: kind.into(), shape, elements })
    }

    fn json(&self) -> String {
        let (name, kind, shape) = (quoted(&self.name), quoted(&self.kind), &self.shape);
        format!(r#"{{"name":{name},"type":{kind},"port":0,"shape":{shape:?}}}"#)
    }

    fn fixed(&self) -> bool {
        size(&self.kind).is_some() && !self.shape.contains(&-1)
    }

    fn pack(&self) -> Fallible<Vec<u8>> {
        let texts = self.elements.as_deref().unwrap_or_default();
        let mut bytes = vec![];
        if self.shape.contains(&-1) {
            let others: i64 = self.shape.iter().filter(|size| **size != -1).product();
            bytes.extend((texts.len() as u64 / others.max(1) as u64).to_le_bytes());
        }
        if size(&self.kind).is_none() {
            bytes.extend(texts.iter().flat_map(|text| (text.len() as u32).to_le_bytes()));
        }
        for text in texts {
            bytes.extend(encode(&self.kind, text)?);
        }
        Ok(bytes)
    }

    fn unpack(&self, replies: &mut impl Read) -> Fallible<Vec<String>> {
        let mut count = 1u64;
        for size in &self.shape {
            let size = if *size == -1 { number(replies, 8)? } else { *size as u64 };
            count = count.checked_mul(size).filter(|count| *count < 1 << 28).ok_or("the advice is too large")?;
        }
        let sizes: Vec<u64> = match size(&self.kind) {
            Some(size) => vec![size; count as usize],
            None => (0..count).map(|_| number(replies, 4)).collect::<Fallible<_>>()?,
        };
        sizes.into_iter().map(|size| decode(&self.kind, take(replies, size)?)).collect()
    }
}

fn ask(path: &str, policy: &str, advice: &Tensor, features: &[Tensor]) -> Fallible<Vec<String>> {
    let mut server = UnixStream::connect(path)?;
    server.set_read_timeout(Some(Duration::from_secs(10)))?;
    server.set_write_timeout(Some(Duration::from_secs(10)))?;
    let mut replies = BufReader::new(server.try_clone()?);
    server.write_all(format!("{{\"policybridge\":1,\"policy\":{}}}\n", quoted(policy)).as_bytes())?;
    let opened = line(&mut replies)?;
    if opened.starts_with(r#"{"error":"#) {
        return Err(opened.into());
    }
    let specs = features.iter().map(Tensor::json).collect::<Vec<_>>().join(",");
    let payload = features.iter().map(Tensor::pack).collect::<Fallible<Vec<_>>>()?.concat();
    let fixed = features.iter().all(Tensor::fixed);
    let bytes = if fixed { String::new() } else { format!(",\"bytes\":{}", payload.len()) };
    // The next decisions of the session are an observation each: {"observation":1}, {"observation":2}, …
    let lines = format!("{{\"features\":[{specs}],\"advice\":{}}}\n{{\"observation\":0{bytes}}}\n", advice.json());
    server.write_all(&[lines.as_bytes(), &payload, b"\n"].concat())?;
    if take(&mut replies, 1)? != [0] {
        return Err(line(&mut replies)?.into());
    }
    if !advice.fixed() {
        number(&mut replies, 8)?; // the advice's size, which its own sizes tell again
    }
    advice.unpack(&mut replies)
}

fn take(replies: &mut impl Read, count: u64) -> Fallible<Vec<u8>> {
    let mut bytes = vec![];
    replies.take(count).read_to_end(&mut bytes)?;
    (bytes.len() as u64 == count).then_some(bytes).ok_or_else(|| "the server ended the session".into())
}

fn number(replies: &mut impl Read, size: u64) -> Fallible<u64> {
    Ok(take(replies, size)?.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte)))
}

fn line(replies: &mut impl BufRead) -> Fallible<String> {
    let mut line = String::new();
    replies.read_line(&mut line)?;
    (line.pop() == Some('\n')).then_some(line).ok_or_else(|| "the server ended the session".into())
}

/// Gives a text as a string of JSON.
fn quoted(text: &str) -> String {
    let escaped = text.chars().map(|each| match each {
        '"' | '\\' => format!("\\{each}"),
        '\0'..='\x1f' => format!("\\u{:04x}", each as u32),
        _ => each.to_string(),
    });
    format!("\"{}\"", escaped.collect::<String>())
}

fn decide(path: &str, policy: &str, advice: &str, features: &[String]) -> Fallible<Vec<String>> {
    let advice = Tensor::parse(advice)?;
    let features = features.iter().map(|text| Tensor::parse(text)).collect::<Fallible<Vec<_>>>()?;
    ask(path, policy, &advice, &features).or_else(|error| {
        eprintln!("no advice from {path}: {error}");
        advice.elements.ok_or_else(|| "the compiler has no decision of its own".into())
    })
}

fn main() {
    let words: Vec<String> = env::args().skip(1).collect();
    let decided = if let [path, policy, advice, features @ ..] = words.as_slice() {
        decide(path, policy, advice, features)
    } else {
        Err("usage: advice SOCKET POLICY ADVICE FEATURE…".into())
    };
    match decided {
        Ok(elements) => println!("{}", elements.join(",")),
        Err(error) => {
            eprintln!("{error}");
            exit(1)
        }
    }
}
