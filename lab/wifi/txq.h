// SPDX-License-Identifier: Apache-2.0
// mac80211's queues between the network stack and the radio.
#pragma once

#include "ns3/mac48-address.h"
#include "ns3/nstime.h"
#include "ns3/packet.h"

#include <deque>
#include <functional>
#include <list>
#include <map>
#include <unordered_map>

namespace medium
{

/// A packet (without link header) on its way to a station.
struct Frame
{
    ns3::Ptr<ns3::Packet> packet;
    ns3::Mac48Address to;
    uint16_t protocol; // Ethertype
    ns3::Time queued;
};

/// fq_codel per station (RFC 8290 with the constants of net/mac80211) and
/// airtime deficit round robin between the stations, above a short hardware
/// queue, which is filled one aggregate at a time.
class Mac80211Queue
{
  public:
    struct Hardware
    {
        std::function<uint32_t()> queued;  // frames in the hardware queue
        uint32_t depth;                    // its limit, frames
        uint32_t aggregate;                // largest aggregate, frames
        double bitsPerSecond;              // PHY rate, to estimate airtime with
        std::function<void(const Frame&)> send;
    };

    explicit Mac80211Queue(Hardware hardware);

    void Enqueue(Frame frame);
    /// Fills the hardware queue. Must be called after frames have left it.
    void Schedule();

    uint64_t overlimit = 0; // frames dropped because the whole queue was full
    uint64_t codel = 0;     // frames dropped by CoDel
    uint64_t marked = 0;    // frames marked CE by CoDel instead

  private:
    struct Flow
    {
        std::deque<Frame> frames;
        uint32_t bytes = 0;
        int32_t deficit = 0; // bytes
        bool listed = false;
        // CoDel (RFC 8289)
        ns3::Time firstAbove{0};
        ns3::Time dropNext{0};
        uint32_t count = 0;
        uint32_t lastCount = 0;
        bool dropping = false;
    };

    struct Station
    {
        std::unordered_map<uint32_t, Flow> flows; // by flow hash
        std::list<Flow*> fresh;                   // new flows go first
        std::list<Flow*> old;
        uint32_t frames = 0;
        double deficit = 0; // us of airtime
        bool listed = false;
    };

    void DropFromFattestFlow();
    bool Pop(Station& station, Flow& flow, Frame& frame);
    bool AboveTarget(Flow& flow, const Frame& frame);
    bool CodelDequeue(Station& station, Flow& flow, Frame& frame);
    bool Dequeue(Station& station, Frame& frame);

    Hardware m_hardware;
    std::map<ns3::Mac48Address, Station> m_stations;
    std::list<Station*> m_active;
    uint32_t m_frames = 0;
    uint32_t m_bytes = 0;
};

} // namespace medium
