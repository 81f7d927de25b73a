//! Whether GPUs over PCIe read and write each other's memory.

use super::spec::{Hardware, Interconnect, InterconnectKind};

/// Cards whose driver refuses peer access over PCIe.
const WITHOUT_PEERS: &str = "GeForce";

/// Whether GPUs read and write each other's memory over PCIe (peer-to-peer).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PeerAccess {
    /// They do. Without it every copy goes through the host's memory.
    pub is_there: bool,
    /// Neither the GPU's file nor an option says so: it is assumed by the card's kind.
    pub is_assumed: bool,
}

impl Hardware {
    /// Returns whether GPUs over PCIe have peer access; `None` over NVLink, where they always do, and for a single GPU. Without the key in
    /// the file, GeForce cards are taken to have none, because NVIDIA's driver refuses it, and all others to have it.
    ///
    /// ```
    /// use ridgepoint::Hardware;
    /// let peers = |name| Hardware::find(name).map(|gpu| gpu.peer_access().map(|of| (of.is_there, of.is_assumed)));
    /// assert_eq!(peers("L40S")?, Some((true, false)));
    /// assert_eq!(peers("RTX 5090")?, Some((false, false)));
    /// // On workstation boards the host decides.
    /// assert_eq!(peers("RTX A6000")?, Some((true, true)));
    /// assert_eq!(peers("H100")?, None);
    /// # Ok::<(), ridgepoint::Error>(())
    /// ```
    pub fn peer_access(&self) -> Option<PeerAccess> {
        let link = self.interconnect.filter(|link| link.kind == InterconnectKind::Pcie && link.num_gpus > 1)?;
        let by_kind = !self.display_name.contains(WITHOUT_PEERS);
        Some(PeerAccess { is_there: link.peer_access.unwrap_or(by_kind), is_assumed: link.peer_access.is_none() })
    }

    /// Returns the GPU with or without peer access. Over NVLink, which always has it, a note says that nothing changes.
    #[must_use]
    pub fn with_peer_access(&self, is_there: bool) -> Hardware {
        let mut gpu = self.clone();
        if self.peer_access().is_some() {
            gpu.interconnect = gpu.interconnect.map(|link| Interconnect { peer_access: Some(is_there), ..link });
        } else {
            let note = format!("peer_access is of GPUs that PCIe joins: it changes nothing on {}", self.name);
            if !gpu.notes.contains(&note) {
                gpu.notes.push(note);
            }
        }
        gpu
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_without_the_key_takes_the_default_of_the_cards_kind() {
        let of = |display_name: &str| {
            let mut gpu = Hardware::find("l40s").unwrap();
            gpu.interconnect = gpu.interconnect.map(|link| Interconnect { peer_access: None, ..link });
            Hardware { display_name: display_name.to_owned(), ..gpu }.peer_access().unwrap()
        };
        assert_eq!(of("NVIDIA GeForce RTX 4080 16 GB"), PeerAccess { is_there: false, is_assumed: true });
        assert_eq!(of("NVIDIA A16 16 GB"), PeerAccess { is_there: true, is_assumed: true });
    }

    #[test]
    fn an_option_replaces_what_the_file_says_and_nvlink_only_notes_it() {
        let set = Hardware::find("rtx_4090").unwrap().with_peer_access(true);
        assert_eq!(set.peer_access(), Some(PeerAccess { is_there: true, is_assumed: false }));
        let nvlink = Hardware::find("h100").unwrap();
        let unchanged = nvlink.with_peer_access(false);
        assert_eq!(unchanged.interconnect, nvlink.interconnect);
        assert!(unchanged.notes.iter().any(|note| note.contains("changes nothing on h100_sxm")));
    }
}
