// SPDX-License-Identifier: Apache-2.0
// Schedulers, which serve some stations before others: wifirrd's policy with
// either of its backends, the paper's two forms, and WiFox.
#pragma once

#include "ap-queue.h"
#include "medium.h"

#include "ns3/wifi-net-device.h"

#include "contention.h"
#include "effect.h"
#include "policy.h"

#include <memory>
#include <string>

namespace dense
{

class StationScheduler
{
  public:
    struct Options
    {
        std::string form; // none, ap, middlebox, wifirr, wifirr-htb, wifox
        bool rts = false; // the AP's RTS threshold: always with none, while scheduling with the others
        double linkKbit = 0;    // the link rate that wifirrd assumes
        double trickleKbit = 0; // a waiting client's rate; 0: the form's own
        unsigned active = 0;    // K, 0: the form's own
        unsigned slotMs = 0;    // T, 0: the form's own
        // Clients' CWmin for best effort: off, auto (contention.c), or always this exponent.
        std::string windows = "off";
        bool mesh = false;     // the last station is a mesh neighbour: no turns, and no windows
        bool trace = false;
    };

    StationScheduler(const Options& options, ns3::Ptr<ApQueue> queue, ns3::Ptr<ns3::WifiNetDevice> ap,
              ns3::NetDeviceContainer stations, const Medium& medium);

    bool IsWaiting(unsigned station) const;
    uint64_t Engagements() const;
    /// The exponent of the clients' CWmin: announced now, and the mean over the run.
    unsigned Exponent() const;
    double MeanExponent() const;

  private:
    void StartPolicy(policy_mode mode);
    void Tick();
    void Apply();
    void ApplyHtb();
    void UpdateHtbRates();
    void MiddleboxSlot();
    void WifoxInterval();
    void WifoxPriority(bool high);
    void SetRts(bool on);
    bool IsNeighbour(unsigned station) const;
    bool IsNeighbour(ns3::Mac48Address address) const;
    void WatchBeacons();
    void WatchContention();
    void ContentionTick();
    void Announce(unsigned exponent, unsigned apExponent);
    void TakeWindow(unsigned station);

    const Options m_options;
    ns3::Ptr<ApQueue> m_queue;
    ns3::Ptr<ns3::WifiNetDevice> m_ap;
    const ns3::NetDeviceContainer m_devices;
    const unsigned m_stations;
    const Medium& m_medium;
    std::unique_ptr<policy> m_policy;
    std::vector<uint64_t> m_delivered, m_received; // bytes, at the last tick
    effect m_effect{};
    std::vector<effect_client> m_watched;
    ns3::Time m_readAt;
    bool m_htbScheduling = false;
    double m_trickle = 0, m_next = 0, m_soon = 0; // htb: rates of clients not active, bytes/s
    ns3::Time m_busyAt, m_busyBefore;  // survey: time of the last read, and busy time then
    int m_busy = POLICY_BUSY_UNKNOWN;
    unsigned m_group = 0;

    std::unique_ptr<contention> m_contention;
    unsigned m_exponent;                     // announced
    ns3::Time m_contentionAt, m_contentionBusy; // time of the last tick, and busy time then
    std::vector<uint64_t> m_sent, m_sentTo;  // bytes from and to each station at that tick
    uint64_t m_frames = 0, m_failed = 0;     // the AP's frames to clients since that tick
    bool m_rts = false;
    double m_exponentSum = 0;                // exponent times seconds
    ns3::Time m_announcedAt;
};

} // namespace dense
