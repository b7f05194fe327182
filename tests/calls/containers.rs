//! The methods of the standard library's containers, as far as they say what is in hand after them.

use super::kind::Kind;

/// What the closure that is given to a method of a container takes first.
pub fn closure_takes(of: &Kind, method: &str) -> Option<Kind> {
    let same = ["fold", "unwrap_or_else", "or_else", "ok_or_else", "map_err", "or_insert_with"];
    if same.contains(&method) { None } else { held(of) }
}

/// What a container holds: of a map, the values; `None` if it is none.
pub fn held(of: &Kind) -> Option<Kind> {
    match of.name.as_str() {
        "Option"
        | "Result"
        | "Iterator"
        | "IntoIterator"
        | "Vec"
        | "VecDeque"
        | "[]"
        | "Mutex"
        | "BTreeSet"
        | "HashSet"
        | "FxHashSet"
        | "BinaryHeap"
        | "DoubleEndedIterator"
        | "ExactSizeIterator"
        | "RefCell"
        | "OnceLock"
        | "LazyLock"
        | "Peekable"
        | "Reverse" => of.part(0),
        "HashMap" | "BTreeMap" | "FxHashMap" | "Entry" => of.part(1),
        _ => None,
    }
}

/// What a method of a container returns; `closure` is what the closure it was given returns.
pub fn after(of: &Kind, method: &str, closure: Option<Kind>) -> Option<Kind> {
    let map = ["HashMap", "BTreeMap", "FxHashMap"].contains(&of.name.as_str());
    let wrapper =
        if ["Option", "Result"].contains(&of.name.as_str()) { &of.name } else { "Iterator" };
    match method {
        "unwrap" | "expect" | "unwrap_or" | "unwrap_or_else" | "unwrap_or_default" | "insert"
        | "or_default" | "or_insert" | "or_insert_with" | "get_or_insert_with" | "borrow"
        | "borrow_mut" | "map_or_default"
            if !map =>
        {
            held(of)
        }
        "get" | "get_mut" | "remove" | "first" | "last" | "first_mut" | "last_mut" | "pop"
        | "next" | "next_back" | "pop_front" | "pop_back" | "front" | "back" | "find"
        | "max_by_key" | "min_by_key" | "min" | "max" | "ok" | "nth" | "peek" | "replace"
        | "swap_remove" | "insert" => Some(Kind::holding("Option", held(of))),
        "lock" | "ok_or" | "ok_or_else" => Some(Kind::holding("Result", held(of))),
        "entry" => Some(Kind { name: "Entry".to_owned(), of: of.of.clone() }),
        "values" | "values_mut" | "into_values" | "drain" if map => {
            Some(Kind::holding("Iterator", held(of)))
        }
        "keys" | "into_keys" => Some(Kind::holding("Iterator", of.part(0))),
        "iter" | "iter_mut" | "into_iter" if map => {
            let pair = Kind { name: "()".to_owned(), of: of.of.clone() };
            Some(Kind::holding("Iterator", Some(pair)))
        }
        "first_key_value" | "last_key_value" | "pop_first" if map => {
            let pair = Kind { name: "()".to_owned(), of: of.of.clone() };
            Some(Kind::holding("Option", Some(pair)))
        }
        "iter" | "iter_mut" | "into_iter" | "drain" | "range" | "chunks" | "split_off" => {
            Some(Kind::holding(wrapper, held(of)))
        }
        "map" => Some(Kind::holding(wrapper, closure)),
        "map_or" | "map_or_else" | "is_some_and" => closure,
        "and_then" => closure,
        "filter_map" | "flat_map" => Some(Kind::holding("Iterator", held(&closure?))),
        "flatten" => Some(Kind::holding(wrapper, held(&held(of)?))),
        "find_map" => Some(Kind::holding("Option", held(&closure?))),
        "enumerate" => {
            let pair = Kind { name: "()".to_owned(), of: vec![None, held(of)] };
            Some(Kind::holding("Iterator", Some(pair)))
        }
        "as_ref" | "as_mut" | "as_deref" | "as_deref_mut" | "clone" | "cloned" | "copied"
        | "filter" | "rev" | "chain" | "skip" | "take" | "or" | "or_else" | "peekable"
        | "inspect" | "take_while" | "skip_while" | "step_by" | "map_err" | "as_slice"
        | "to_vec" | "collect" => Some(of.clone()),
        _ => None,
    }
}

/// Names of methods that the standard library has, too: not taken for one of ours by the name
/// alone.
pub fn is_common(method: &str) -> bool {
    const COMMON: &str = "\
        all any append as_bytes as_mut as_ref as_str begin bytes chain clear clone cmp collect \
        contains count drain end entry eq extend fill filter find first flush fmt get get_mut \
        hash index insert into is_empty is_some iter join keys last len load lock map max min \
        next notify parse path pop position push push_str range read remove replace reserve \
        retain rev seek send set skip sort split start store sum swap take then to_string \
        truncate try_from try_into unlock unwrap values wait wake write zip";
    COMMON.split(' ').any(|common| common == method)
}
