// SPDX-License-Identifier: Apache-2.0
// The access point's queues above its short hardware queue.
#pragma once

#include "shaper.h"

#include "ns3/codel-queue-disc.h"
#include "ns3/mac48-address.h"
#include "ns3/queue-disc.h"
#include "ns3/wifi-mac-queue.h"

#include <deque>
#include <list>
#include <map>
#include <memory>

namespace dense
{

/// The root queue disc of the AP's WiFi device.
///
/// FIFO: 512 packets, dropped at the tail, as in the paper (and as ath9k's
/// per-station queues before 2016: an aggregate takes one station's packets).
///
/// MAC80211: as in Linux since then: CoDel flow queues for each station, and
/// airtime deficit round robin between stations (net/mac80211/tx.c,
/// ieee80211_next_txq, of Linux 6.x).
class ApQueue : public ns3::QueueDisc
{
  public:
    enum Kind
    {
        FIFO,
        MAC80211
    };

    /// The hardware queue: depth aggregates (or frames, without aggregation). A driver with vht has memory for more above it.
    ApQueue(Kind kind, unsigned depth, bool vht);

    /// MAC80211 without such a queue: airtime queue limits bound the airtime of a
    /// station's frames in the hardware (net/mac80211/airtime.c, tx.c). The airtime
    /// is estimated from this rate, and from this overhead for each frame.
    void LimitAirtime(double mbps, double overheadUs);

    /// Stations are numbered from 0 in the order of these calls. An aggregate for the station has at most so many frames.
    void AddStation(ns3::Mac48Address address, unsigned aggregate);
    /// Watches for frames that leave the MAC's queue, acknowledged or dropped.
    void Watch(ns3::Ptr<ns3::WifiMacQueue> queue);
    /// Puts a shaper in front (HTB on this device, or a box before the AP) with this many stations in a class.
    void SetShaper(std::unique_ptr<Shaper> shaper, unsigned stationsPerClass);
    Shaper* GetShaper();

    void SetWeight(unsigned station, unsigned weight);
    /// Packets of preferred stations go first, the others' only if there are none (the paper, section 5).
    void SetPreferred(unsigned station, bool preferred);
    /// Charges a station for the airtime of a frame from it.
    void Charge(ns3::Mac48Address address, ns3::Time airtime);
    /// Charges a station for the airtime of a frame to it, and counts it for Airtime().
    void ChargeSent(ns3::Mac48Address address, ns3::Time airtime);
    /// Counts the bytes of a frame from a station for Received().
    void Receive(ns3::Mac48Address address, uint32_t bytes);

    /// Bytes queued for the station above the hardware, not counting the shaper's.
    uint32_t Waiting(unsigned station) const;
    /// Bytes sent to the station since the start.
    uint64_t Delivered(unsigned station) const;
    /// Bytes received from it since the start.
    uint64_t Received(unsigned station) const;
    /// Airtime of frames to it, as drivers count it; us.
    uint64_t Airtime(unsigned station) const;
    uint32_t Packets() const;

  private:
    struct Flow
    {
        ns3::Ptr<ns3::CoDelQueueDisc> queue;
        int32_t deficit = 0; // bytes
        bool listed = false;
    };

    struct Station
    {
        unsigned aggregate;
        // FIFO
        std::deque<std::pair<uint64_t, ns3::Ptr<ns3::QueueDiscItem>>> packets; // with arrival number
        // MAC80211
        std::map<uint32_t, Flow> flows;
        std::list<Flow*> fresh, old;
        double deficit = 0; // us
        unsigned weight = 256;
        ns3::Time lastActive;
        uint64_t airtime = 0; // of frames to it, us
        bool listed = false;
        double pending = 0; // estimated airtime of its frames in the hardware, us
        // both
        bool preferred = true;
        uint64_t delivered = 0, received = 0;
    };

    bool DoEnqueue(ns3::Ptr<ns3::QueueDiscItem> item) override;
    ns3::Ptr<ns3::QueueDiscItem> DoDequeue() override;
    bool CheckConfig() override;
    void InitializeParams() override;

    void Admit(ns3::Ptr<ns3::QueueDiscItem> item);
    void AdmitMac80211(Station& station, ns3::Ptr<ns3::QueueDiscItem> item);
    void Schedule(Station& station);
    void DropFromFattestFlow();
    Station* NextFifo();
    Station* NextMac80211();
    Station* NextWithinLimits();
    bool MaySend(const Station& station) const;
    ns3::Ptr<ns3::QueueDiscItem> Take(Station& station);
    ns3::Ptr<ns3::QueueDiscItem> TakeFlows(Station& station);
    void Left(ns3::Ptr<const ns3::WifiMpdu> mpdu);
    void RunSoon();

    const Kind m_kind;
    const unsigned m_depth;
    const uint32_t m_limit; // packets above the hardware, MAC80211
    std::unique_ptr<Shaper> m_shaper;
    unsigned m_stationsPerClass = 1;
    std::deque<Station> m_stations;
    std::map<ns3::Address, unsigned> m_ids;
    std::list<Station*> m_active;
    uint64_t m_arrivals = 0;
    uint32_t m_packets = 0;

    struct Batch
    {
        unsigned id;
        unsigned outstanding;
    };
    std::list<Batch> m_batches; // aggregates in the hardware
    std::multimap<uint64_t, unsigned> m_sent; // packet uid to batch
    unsigned m_batch = 0;
    Station* m_filling = nullptr; // whose batch is being taken out
    unsigned m_room = 0;          // frames that the batch may still take
    bool m_runPending = false;

    // airtime queue limits
    double m_limitRate = 0, m_limitOverhead = 0; // bits/us, us; 0: none
    double m_pending = 0;                        // us, of all stations
    std::map<uint64_t, std::pair<Station*, double>> m_estimated; // by packet uid: the station, and the packet's share of its pending airtime
};

} // namespace dense
