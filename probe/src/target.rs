//! The server that a URL names.

use std::fmt;

use hyper::Uri;
use hyper::http::uri::Scheme;
use tokio_rustls::rustls::pki_types::ServerName;

/// The server of a URL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// Whether it speaks TLS.
    pub(crate) is_tls: bool,
    /// Its name or address, without brackets.
    pub(crate) host: String,
    pub(crate) port: u16,
    /// The path before `/v1`, without a slash at its end.
    prefix: String,
    /// Host and port as the URL has them.
    pub(crate) authority: String,
}

/// Ends of a URL that name the API itself.
const ENDPOINTS: [&str; 5] = ["/v1/chat/completions", "/v1/completions", "/v1/models", "/chat/completions", "/v1"];

impl Target {
    /// Parses the URL of a server: with or without `/v1`, or that of an endpoint.
    ///
    /// # Errors
    /// A text that is no URL of http or https, or has a user, a query or a fragment.
    ///
    /// ```
    /// use ridgepoint_probe::Target;
    ///
    /// let target = Target::parse("https://[::1]:8000/proxy/v1/").unwrap();
    /// assert_eq!(target.to_string(), "https://[::1]:8000/proxy");
    /// assert!(Target::parse("127.0.0.1:8000").unwrap_err().contains("http://127.0.0.1:8000"));
    /// ```
    pub fn parse(text: &str) -> Result<Target, String> {
        if !text.contains("://") {
            return Err(format!("must begin with http:// or https://, as http://{text}"));
        }
        let uri: Uri = text.parse().map_err(|error| format!("is no URL: {error}"))?;
        let is_tls = match uri.scheme() {
            Some(scheme) if *scheme == Scheme::HTTPS => true,
            Some(scheme) if *scheme == Scheme::HTTP => false,
            _ => return Err("must begin with http:// or https://".to_owned()),
        };
        let authority = uri.authority().ok_or("has no host")?.as_str();
        if authority.contains('@') {
            return Err("has a user in front of the host: give keys by a file or the environment".to_owned());
        }
        if uri.query().is_some() || text.contains('#') {
            return Err("has a query or fragment: give the server alone, as http://host:8000".to_owned());
        }
        let host = uri.host().unwrap_or_default().trim_start_matches('[').trim_end_matches(']').to_owned();
        if host.is_empty() || ServerName::try_from(host.as_str()).is_err() {
            return Err(format!("has no valid host: '{host}'"));
        }
        let port = match uri.port() {
            Some(port) => port.as_u16(),
            None if authority.ends_with(':') || has_bad_port(authority) => {
                return Err("has a port that is no number from 1 to 65535".to_owned());
            }
            None => {
                if is_tls {
                    443
                } else {
                    80
                }
            }
        };
        let path = uri.path().trim_end_matches('/');
        let prefix = ENDPOINTS.iter().find_map(|end| path.strip_suffix(end)).unwrap_or(path).to_owned();
        Ok(Target { is_tls, host, port, prefix, authority: authority.to_owned() })
    }

    /// The path of an endpoint of the server, such as `/metrics`.
    pub(crate) fn path(&self, endpoint: &str) -> String {
        format!("{}{endpoint}", self.prefix)
    }

    /// Whether the server is on this machine, judging by its address. A tunnel's end is too.
    pub fn is_loopback(&self) -> bool {
        match self.host.parse::<std::net::IpAddr>() {
            Ok(address) => address.is_loopback(),
            Err(_) => self.host.eq_ignore_ascii_case("localhost"),
        }
    }
}

fn has_bad_port(authority: &str) -> bool {
    let rest = authority.rsplit_once(']').map_or(authority, |(_, rest)| rest);
    rest.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_err())
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}{}", if self.is_tls { "https" } else { "http" }, self.authority, self.prefix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_of_servers_and_endpoints() {
        for (text, path, port) in [
            ("http://localhost", "/v1/models", 80),
            ("https://example.org/", "/v1/models", 443),
            ("http://h:8000/v1", "/v1/models", 8000),
            ("http://h:8000/v1/chat/completions", "/v1/models", 8000),
            ("http://h:8000/a/b/v1/completions/", "/a/b/v1/models", 8000),
            ("http://[::1]:7/x", "/x/v1/models", 7),
        ] {
            let target = Target::parse(text).unwrap();
            assert_eq!((target.path("/v1/models").as_str(), target.port), (path, port), "{text}");
        }
    }

    #[test]
    fn loopback_is_identified_by_the_address() {
        for (text, expected) in [
            ("http://[::1]", true),
            ("http://127.1.2.3:80", true),
            ("http://LOCALHOST", true),
            ("http://10.0.0.1", false),
        ] {
            assert_eq!(Target::parse(text).unwrap().is_loopback(), expected, "{text}");
        }
    }

    #[test]
    fn other_texts_are_refused() {
        for (text, said) in [
            ("h:8000", "http://h:8000"),
            ("ftp://h", "http:// or https://"),
            ("http://", "no URL"),
            ("http://user:key@h", "user in front"),
            ("http://h/?a=1", "query"),
            ("http://h/#a", "query or fragment"),
            ("http://h:99999", "port"),
            ("http://h:", "port"),
            ("http://a b", "no URL"),
        ] {
            let error = Target::parse(text).unwrap_err();
            assert!(error.contains(said), "{text}: {error}");
        }
    }
}
