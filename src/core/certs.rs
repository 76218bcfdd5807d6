//! When a certificate is renewed, when there is none that counts, and what a serving certificate has to name.
//!
//! Layer L1, pure: the wall clock and chance are arguments. A certificate that is past its end or before
//! its beginning stops nothing by itself: it only says with which credentials a new one is asked for.

use std::net::IpAddr;
use std::time::Duration;

use crate::api::v1::NodeAddress;
use crate::util::order;

/// Share of a certificate's life after which it is renewed: from so much …
const EARLIEST: f64 = 0.7;
/// … plus up to so much by chance, so that the nodes of a cluster do not come all at once.
const SPREAD: f64 = 0.2;
/// Longest sleep: the wall clock may be set meanwhile, and files may be changed by others.
const LOOK_AGAIN: Duration = Duration::from_secs(600);
/// How soon files are looked at again when nothing else can be done.
const LOOK_SOON: Duration = Duration::from_secs(30);

/// From when to when a certificate counts, in seconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validity {
    /// The first second.
    pub not_before: i64,
    /// The last second.
    pub not_after: i64,
}

impl Validity {
    /// When to renew it. `chance` is from 0 to 1, and the same for the whole life of one certificate.
    pub fn renew_at(&self, chance: f64) -> i64 {
        let life = self.not_after.saturating_sub(self.not_before).max(0);
        #[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation)]
        let part = (life as f64 * (EARLIEST + SPREAD * chance.clamp(0.0, 1.0))).round() as i64;
        self.not_before.saturating_add(part)
    }
}

/// The certificate at hand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// Its life.
    pub validity: Validity,
    /// Whether it names everything that it has to.
    pub fits: bool,
}

/// What a serving certificate names, each in order and once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServingNames {
    /// DNS names.
    pub dns: Vec<String>,
    /// Addresses.
    pub ips: Vec<IpAddr>,
}

/// What the serving certificate of a node with these addresses names; `None` for a node without an IP address, which
/// asks for none.
pub fn serving_names(addresses: &[NodeAddress]) -> Option<ServingNames> {
    let mut names = ServingNames::default();
    for NodeAddress { address, type_ } in addresses.iter().filter(|address| !address.address.is_empty()) {
        match (address.parse(), type_.as_str()) {
            (Ok(ip), "Hostname" | "ExternalIP" | "InternalIP") => names.ips.push(ip),
            (Err(_), "Hostname") | (_, "ExternalDNS" | "InternalDNS") => names.dns.push(address.clone()),
            _ => {}
        }
    }
    order::sort(&mut names.dns);
    names.dns.dedup();
    order::sort(&mut names.ips);
    names.ips.dedup();
    Some(names).filter(|names| !names.ips.is_empty())
}

/// What can be done about a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Means {
    /// `rotateCertificates`.
    pub may_renew: bool,
    /// There are credentials to get a first certificate with.
    pub can_bootstrap: bool,
}

/// What to do now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// All is well or nothing can be done: look again after this time.
    Wait(Duration, Health),
    /// Ask for a new one, as the owner of the present one.
    Renew,
    /// Ask for one with the credentials for the first.
    Bootstrap(Health),
}

/// How it is with the certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Health {
    /// It counts.
    Good,
    /// There is none that can be read.
    Missing,
    /// Its end is past.
    Expired,
    /// Its beginning is still to come, by this machine's clock.
    NotYetValid,
    /// It does not name all that it has to.
    Unfit,
}

impl Health {
    /// For people.
    pub const fn text(self) -> &'static str {
        match self {
            Self::Good => "is good",
            Self::Missing => "is missing",
            Self::Expired => "has expired",
            Self::NotYetValid => "is not valid yet: is this machine's clock right?",
            Self::Unfit => "does not name all addresses of this node",
        }
    }
}

/// Looks at the certificate at hand. `now` is the wall clock in seconds since 1970.
pub fn decide(found: Option<Found>, now: i64, chance: f64, means: Means) -> Decision {
    let health = match found {
        None => Health::Missing,
        Some(found) if now > found.validity.not_after => Health::Expired,
        Some(found) if !found.fits => Health::Unfit,
        Some(found) if now < found.validity.not_before => Health::NotYetValid,
        Some(_) => Health::Good,
    };
    match (health, found) {
        (Health::Good, Some(found)) => {
            let left = found.validity.renew_at(chance).saturating_sub(now);
            match u64::try_from(left) {
                _ if !means.may_renew => Decision::Wait(LOOK_AGAIN, health),
                Ok(left) if left > 0 => Decision::Wait(Duration::from_secs(left).min(LOOK_AGAIN), health),
                _ => Decision::Renew,
            }
        }
        // The clock is more likely wrong than the certificate; a new one would not count by it either.
        (Health::NotYetValid, _) => Decision::Wait(LOOK_SOON, health),
        _ if means.can_bootstrap => Decision::Bootstrap(health),
        _ => Decision::Wait(LOOK_SOON, health),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIFE: Validity = Validity { not_before: 1000, not_after: 2000 };

    fn check(found: Option<Validity>, now: i64, may_renew: bool, can_bootstrap: bool, expect: &str) {
        let found = found.map(|validity| Found { validity, fits: true });
        let got = match decide(found, now, 0.5, Means { may_renew, can_bootstrap }) {
            Decision::Wait(time, health) => format!("{} s, {health:?}", time.as_secs()),
            Decision::Renew => "renew".to_owned(),
            Decision::Bootstrap(health) => format!("bootstrap, {health:?}"),
        };
        assert_eq!(got, expect, "{found:?} at {now}");
    }

    #[test]
    fn a_certificate_is_renewed_late_in_its_life_and_never_without_need() {
        check(Some(LIFE), 1000, true, true, "600 s, Good");
        check(Some(LIFE), 1700, true, true, "100 s, Good");
        check(Some(LIFE), 1799, true, true, "1 s, Good");
        check(Some(LIFE), 1800, true, true, "renew");
        check(Some(LIFE), 2000, true, false, "renew");
        check(Some(LIFE), 1900, false, true, "600 s, Good");
    }

    #[test]
    fn without_a_good_certificate_only_the_bootstrap_helps() {
        check(Some(LIFE), 2001, true, true, "bootstrap, Expired");
        check(Some(LIFE), 2001, true, false, "30 s, Expired");
        check(Some(LIFE), 999, true, true, "30 s, NotYetValid");
        check(None, 0, false, true, "bootstrap, Missing");
        check(None, 0, true, false, "30 s, Missing");
    }

    #[test]
    fn a_certificate_that_lacks_a_name_is_asked_for_anew() {
        let means = Means { may_renew: true, can_bootstrap: true };
        for now in [0, 1500] {
            let found = Found { validity: LIFE, fits: false };
            assert_eq!(decide(Some(found), now, 0.5, means), Decision::Bootstrap(Health::Unfit));
        }
    }

    #[test]
    fn a_node_is_named_by_its_addresses() {
        let check = |addresses: &[(&str, &str)], expect: &str| {
            let address = |(type_, address): &(&str, &str)| NodeAddress {
                address: (*address).to_owned(),
                type_: (*type_).to_owned(),
            };
            let addresses: Vec<_> = addresses.iter().map(address).collect();
            let told = serving_names(&addresses).map(|names| format!("{:?} {:?}", names.dns, names.ips));
            assert_eq!(told.unwrap_or_default(), expect);
        };
        check(
            &[("InternalIP", "10.0.0.2"), ("ExternalIP", "fd00::1"), ("Hostname", "n"), ("InternalDNS", "n")],
            r#"["n"] [10.0.0.2, fd00::1]"#,
        );
        check(
            &[("Hostname", "10.0.0.1"), ("InternalIP", "10.0.0.1"), ("ExternalDNS", "b"), ("InternalDNS", "a")],
            r#"["a", "b"] [10.0.0.1]"#,
        );
        check(&[("Hostname", "n")], "");
        check(&[("Hostname", ""), ("InternalIP", "no address"), ("Other", "10.0.0.1")], "");
    }

    #[test]
    fn chance_spreads_the_renewals_from_seventy_to_ninety_percent() {
        for (chance, expect) in [(0.0, 1700), (0.5, 1800), (1.0, 1900), (7.0, 1900), (-1.0, 1700)] {
            assert_eq!(LIFE.renew_at(chance), expect);
        }
        let odd = Validity { not_before: i64::MAX, not_after: i64::MIN };
        assert_eq!(odd.renew_at(0.5), i64::MAX, "a life that ends before it begins");
    }
}
