// SPDX-License-Identifier: Apache-2.0
#include "txq.h"

#include "ns3/simulator.h"

#include <algorithm>
#include <cmath>
#include <vector>

using namespace ns3;

namespace medium
{

namespace
{

// net/mac80211/tx.c (ieee80211_txq_setup_flows), include/net/fq_impl.h, net/mac80211/sta_info.h
constexpr uint32_t LIMIT_FRAMES = 8192;
constexpr uint32_t LIMIT_BYTES = 4 << 20; // without VHT
constexpr uint32_t FLOWS = 4096;
constexpr int32_t QUANTUM_BYTES = 300;
constexpr double AIRTIME_WEIGHT_US = 256;
const Time TARGET = MilliSeconds(20);
const Time INTERVAL = MilliSeconds(100);
constexpr uint32_t CODEL_MTU = 1514;
// DIFS or AIFS, mean backoff, preamble, SIFS, (block) ACK; 802.11n at 5 GHz, rounded.
constexpr double ACCESS_US = 200;

constexpr uint16_t IPV4 = 0x0800;
constexpr uint16_t IPV6 = 0x86dd;
constexpr uint8_t TCP = 6;
constexpr uint8_t UDP = 17;

/// A hash of addresses, protocol and ports; 0 for a packet that is not IP.
uint32_t
FlowHash(const Frame& frame)
{
    uint8_t b[44] = {};
    uint32_t n = frame.packet->CopyData(b, sizeof(b));
    uint32_t addresses;
    uint32_t addressBytes;
    uint32_t ports;
    uint8_t protocol;
    if (frame.protocol == IPV4 && n >= 20)
    {
        addresses = 12;
        addressBytes = 8;
        ports = (b[0] & 0x0f) * 4;
        protocol = b[9];
    }
    else if (frame.protocol == IPV6 && n >= 40)
    {
        addresses = 8;
        addressBytes = 32;
        ports = 40;
        protocol = b[6];
    }
    else
    {
        return 0;
    }
    uint32_t hash = 2166136261u; // FNV-1a
    auto mix = [&](uint32_t from, uint32_t count) {
        for (uint32_t i = from; i < from + count && i < n; i++)
        {
            hash = (hash ^ b[i]) * 16777619u;
        }
    };
    mix(addresses, addressBytes);
    hash = (hash ^ protocol) * 16777619u;
    if (protocol == TCP || protocol == UDP)
    {
        mix(ports, 4);
    }
    return hash % FLOWS;
}

/// Marks a packet as Congestion Experienced (RFC 3168). False: the sender does not use ECN.
bool
Mark(Frame& frame)
{
    std::vector<uint8_t> b(frame.packet->GetSize());
    frame.packet->CopyData(b.data(), b.size());
    if (frame.protocol == IPV4 && b.size() >= 20 && (b[1] & 3) != 0)
    {
        // RFC 1624: the checksum is a one's complement sum of 16-bit words.
        uint32_t sum = ((b[10] << 8) | b[11]) + (b[1] & 3) + (0xffff - 3);
        b[1] |= 3;
        sum = (sum & 0xffff) + (sum >> 16);
        sum = (sum & 0xffff) + (sum >> 16);
        b[10] = sum >> 8;
        b[11] = sum & 0xff;
    }
    else if (frame.protocol == IPV6 && b.size() >= 40 && (b[1] & 0x30) != 0)
    {
        b[1] |= 0x30;
    }
    else
    {
        return false;
    }
    frame.packet = Create<Packet>(b.data(), b.size());
    return true;
}

} // namespace

Mac80211Queue::Mac80211Queue(Hardware hardware)
    : m_hardware(std::move(hardware))
{
}

void
Mac80211Queue::Enqueue(Frame frame)
{
    frame.queued = Simulator::Now();
    Station& station = m_stations[frame.to];
    Flow& flow = station.flows[FlowHash(frame)];
    uint32_t size = frame.packet->GetSize();
    flow.frames.push_back(std::move(frame));
    flow.bytes += size;
    station.frames++;
    m_frames++;
    m_bytes += size;
    if (!flow.listed)
    {
        flow.listed = true;
        flow.deficit = QUANTUM_BYTES;
        station.fresh.push_back(&flow);
    }
    if (!station.listed)
    {
        station.listed = true;
        m_active.push_back(&station);
    }
    while (m_frames > LIMIT_FRAMES || m_bytes > LIMIT_BYTES)
    {
        DropFromFattestFlow();
    }
    Schedule();
}

void
Mac80211Queue::DropFromFattestFlow()
{
    Station* owner = nullptr;
    Flow* fattest = nullptr;
    for (auto& [address, station] : m_stations)
    {
        for (auto& [hash, flow] : station.flows)
        {
            if (!fattest || flow.bytes > fattest->bytes)
            {
                owner = &station;
                fattest = &flow;
            }
        }
    }
    Frame dropped;
    Pop(*owner, *fattest, dropped);
    overlimit++;
}

bool
Mac80211Queue::Pop(Station& station, Flow& flow, Frame& frame)
{
    if (flow.frames.empty())
    {
        return false;
    }
    frame = std::move(flow.frames.front());
    flow.frames.pop_front();
    uint32_t size = frame.packet->GetSize();
    flow.bytes -= size;
    station.frames--;
    m_frames--;
    m_bytes -= size;
    return true;
}

bool
Mac80211Queue::AboveTarget(Flow& flow, const Frame& frame)
{
    Time now = Simulator::Now();
    if (now - frame.queued < TARGET || flow.bytes <= CODEL_MTU)
    {
        flow.firstAbove = Time(0);
        return false;
    }
    if (flow.firstAbove.IsZero())
    {
        flow.firstAbove = now + INTERVAL;
        return false;
    }
    return now > flow.firstAbove;
}

/// CoDel (RFC 8289), which marks packets that allow it instead of dropping them.
bool
Mac80211Queue::CodelDequeue(Station& station, Flow& flow, Frame& frame)
{
    Time now = Simulator::Now();
    auto controlLaw = [&](Time t) { return t + INTERVAL / std::sqrt(double(flow.count)); };

    if (!Pop(station, flow, frame))
    {
        flow.dropping = false;
        return false;
    }
    bool drop = AboveTarget(flow, frame);
    if (flow.dropping)
    {
        if (!drop)
        {
            flow.dropping = false;
            return true;
        }
        while (flow.dropping && now >= flow.dropNext)
        {
            flow.count++;
            flow.dropNext = controlLaw(flow.dropNext);
            if (Mark(frame))
            {
                marked++;
                return true;
            }
            codel++;
            if (!Pop(station, flow, frame))
            {
                flow.dropping = false;
                return false;
            }
            flow.dropping = AboveTarget(flow, frame);
        }
        return true;
    }
    if (!drop)
    {
        return true;
    }
    bool delivered = true;
    if (Mark(frame))
    {
        marked++;
    }
    else
    {
        codel++;
        delivered = Pop(station, flow, frame);
        if (delivered)
        {
            AboveTarget(flow, frame);
        }
    }
    flow.dropping = true;
    uint32_t delta = flow.count - flow.lastCount;
    flow.count = delta > 1 && now - flow.dropNext < 16 * INTERVAL ? delta : 1;
    flow.lastCount = flow.count;
    flow.dropNext = controlLaw(now);
    return delivered;
}

/// Deficit round robin between a station's flows, new ones first (RFC 8290, 4.2).
bool
Mac80211Queue::Dequeue(Station& station, Frame& frame)
{
    while (!station.fresh.empty() || !station.old.empty())
    {
        bool isFresh = !station.fresh.empty();
        std::list<Flow*>& from = isFresh ? station.fresh : station.old;
        Flow* flow = from.front();
        if (flow->deficit <= 0)
        {
            flow->deficit += QUANTUM_BYTES;
            from.pop_front();
            station.old.push_back(flow);
            continue;
        }
        if (CodelDequeue(station, *flow, frame))
        {
            flow->deficit -= frame.packet->GetSize();
            return true;
        }
        from.pop_front();
        if (isFresh && !station.old.empty())
        {
            station.old.push_back(flow); // so an emptied new flow cannot be new again at once
        }
        else
        {
            flow->listed = false;
        }
    }
    return false;
}

void
Mac80211Queue::Schedule()
{
    uint32_t queued = m_hardware.queued();
    while (queued < m_hardware.depth && !m_active.empty())
    {
        Station* station = m_active.front();
        m_active.pop_front();
        if (station->frames == 0)
        {
            station->listed = false;
            continue;
        }
        m_active.push_back(station);
        if (station->deficit < 0)
        {
            station->deficit += AIRTIME_WEIGHT_US;
            continue;
        }
        uint32_t room = std::min(m_hardware.depth - queued, m_hardware.aggregate);
        uint64_t bits = 0;
        Frame frame;
        for (uint32_t n = 0; n < room && Dequeue(*station, frame); n++)
        {
            bits += frame.packet->GetSize() * 8;
            m_hardware.send(frame);
            queued++;
        }
        if (bits > 0)
        {
            station->deficit -= ACCESS_US + bits / m_hardware.bitsPerSecond * 1e6;
        }
    }
}

} // namespace medium
