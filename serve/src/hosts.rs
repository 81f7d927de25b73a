//! The names under which the server is asked. A page of another site whose name was pointed at this machine sends its own name, and is
//! refused, so that browsers carry no answers to it.

use std::collections::BTreeSet;
use std::net::IpAddr;

use hyper::Request;
use hyper::header::HOST;
use hyper::http::uri::Authority;

/// Names of this machine besides its address and `localhost`.
#[derive(Debug)]
pub struct Hosts {
    address: IpAddr,
    named: BTreeSet<String>,
}

impl Hosts {
    /// The host names of a server that listens on `address`, and `named` ones.
    pub fn new(address: IpAddr, named: &[String]) -> Self {
        Hosts { address, named: named.iter().map(|name| name.to_ascii_lowercase()).collect() }
    }

    /// Whether a request asks this server. One without a host comes from no browser.
    pub fn is_allowed<T>(&self, request: &Request<T>) -> bool {
        let given = match (request.uri().authority(), request.headers().get(HOST)) {
            (Some(authority), _) => Some(authority.clone()),
            (None, Some(host)) => match Authority::try_from(host.as_bytes()) {
                Ok(authority) => Some(authority),
                Err(_) => return false,
            },
            (None, None) => None,
        };
        given.is_none_or(|authority| self.is_known(authority.host()))
    }

    fn is_known(&self, host: &str) -> bool {
        let host = host.trim_start_matches('[').trim_end_matches(']').to_ascii_lowercase();
        if let Ok(address) = host.parse::<IpAddr>() {
            let address = address.to_canonical();
            // Nobody can point an address elsewhere: all of the machine's are as good as each other.
            return address == self.address
                || self.address.is_unspecified()
                || address.is_loopback() && self.address.is_loopback();
        }
        host == "localhost" || host.ends_with(".localhost") || self.named.contains(&host)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_allowed(hosts: &Hosts, host: &str) -> bool {
        hosts.is_allowed(&Request::builder().uri("/").header(HOST, host).body(()).unwrap())
    }

    #[test]
    fn other_names_than_those_of_the_machine_are_not_known() {
        let hosts = Hosts::new([127, 0, 0, 1].into(), &["Ridgepoint.example".to_owned()]);
        for host in ["127.0.0.1", "127.0.0.1:8080", "localhost:8080", "LOCALHOST", "[::1]:80", "ridgepoint.EXAMPLE:443"]
        {
            assert!(is_allowed(&hosts, host), "{host}");
        }
        for host in [
            "evil.example",
            "evil.example:8080",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "10.0.0.1",
            "a@b",
            "",
        ] {
            assert!(!is_allowed(&hosts, host), "{host}");
        }
        let everywhere = Hosts::new([0, 0, 0, 0].into(), &[]);
        assert!(is_allowed(&everywhere, "10.0.0.1:8080") && !is_allowed(&everywhere, "evil.example"));
        let absolute = Request::builder().uri("http://evil.example/").header(HOST, "localhost").body(()).unwrap();
        assert!(!hosts.is_allowed(&absolute));
        assert!(hosts.is_allowed(&Request::builder().uri("/").body(()).unwrap()));
    }
}
