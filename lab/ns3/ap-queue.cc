// SPDX-License-Identifier: Apache-2.0
#include "ap-queue.h"

#include "ns3/simulator.h"
#include "ns3/string.h"
#include "ns3/wifi-mpdu.h"

#include <algorithm>

using namespace ns3;

namespace dense
{

namespace
{

constexpr uint32_t FIFO_LIMIT = 512; // packets, the paper's table 2

// net/mac80211/tx.c (ieee80211_txq_setup_flows) and include/net/fq_impl.h
constexpr uint32_t LIMIT_PACKETS = 8192;
constexpr uint32_t LIMIT_PACKETS_MEMORY = 1820; // 4 MB (hardware without VHT) of 2304-byte buffers
constexpr uint32_t LIMIT_PACKETS_MEMORY_VHT = 7281; // 16 MB
constexpr int32_t FLOW_QUANTUM = 300;           // bytes
constexpr uint32_t FLOWS = 4096;
// net/mac80211/sta_info.h: AIRTIME_QUANTUM_SHIFT, AIRTIME_ACTIVE_DURATION
constexpr unsigned QUANTUM_SHIFT = 3; // us per round = weight << 3
const Time ACTIVE_DURATION = MilliSeconds(100);
// net/mac80211/ieee80211_i.h: IEEE80211_DEFAULT_AQL_TXQ_LIMIT_L, _H, IEEE80211_AQL_THRESHOLD; us
constexpr double LIMIT_LOW = 5000;
constexpr double LIMIT_HIGH = 12000;
constexpr double LIMIT_THRESHOLD = 24000;
constexpr uint32_t FRAME_HEADERS = 38; // bytes, as ieee80211_calc_expected_tx_airtime adds

} // namespace

ApQueue::ApQueue(Kind kind, unsigned depth, bool vht)
    : QueueDisc(QueueDiscSizePolicy::NO_LIMITS),
      m_kind(kind),
      m_depth(depth),
      m_limit(vht ? LIMIT_PACKETS_MEMORY_VHT : LIMIT_PACKETS_MEMORY)
{
}

void
ApQueue::LimitAirtime(double mbps, double overheadUs)
{
    m_limitRate = mbps;
    m_limitOverhead = overheadUs;
}

void
ApQueue::AddStation(Mac48Address address, unsigned aggregate)
{
    m_ids[address] = m_stations.size();
    m_stations.emplace_back();
    m_stations.back().aggregate = aggregate;
}

void
ApQueue::Watch(Ptr<WifiMacQueue> queue)
{
    queue->TraceConnectWithoutContext("Dequeue", MakeCallback(&ApQueue::Left, this));
}

void
ApQueue::SetShaper(std::unique_ptr<Shaper> shaper, unsigned stationsPerClass)
{
    m_stationsPerClass = stationsPerClass;
    m_shaper = std::move(shaper);
    m_shaper->send = [this](Ptr<QueueDiscItem> item) {
        Admit(item);
        Run();
    };
}

Shaper*
ApQueue::GetShaper()
{
    return m_shaper.get();
}

void
ApQueue::SetWeight(unsigned station, unsigned weight)
{
    m_stations[station].weight = weight;
}

void
ApQueue::SetPreferred(unsigned station, bool preferred)
{
    m_stations[station].preferred = preferred;
}

void
ApQueue::Charge(Mac48Address address, Time airtime)
{
    auto id = m_ids.find(address);
    if (id == m_ids.end())
    {
        return;
    }
    Station& station = m_stations[id->second];
    // ieee80211_sta_register_airtime: only stations that were served recently are charged
    if (Simulator::Now() - station.lastActive <= ACTIVE_DURATION)
    {
        station.deficit -= airtime.GetNanoSeconds() / 1e3;
    }
}

void
ApQueue::ChargeSent(Mac48Address address, Time airtime)
{
    auto id = m_ids.find(address);
    if (id != m_ids.end())
    {
        m_stations[id->second].airtime += airtime.GetMicroSeconds();
        Charge(address, airtime);
    }
}

void
ApQueue::Receive(Mac48Address address, uint32_t bytes)
{
    auto id = m_ids.find(address);
    if (id != m_ids.end())
    {
        m_stations[id->second].received += bytes;
    }
}

uint32_t
ApQueue::Waiting(unsigned id) const
{
    const Station& station = m_stations[id];
    uint32_t bytes = 0;
    for (auto& [arrival, item] : station.packets)
    {
        bytes += item->GetSize();
    }
    for (auto& [hash, flow] : station.flows)
    {
        bytes += flow.queue->GetNBytes();
    }
    return bytes;
}

uint64_t
ApQueue::Delivered(unsigned station) const
{
    return m_stations[station].delivered;
}

uint64_t
ApQueue::Received(unsigned station) const
{
    return m_stations[station].received;
}

uint64_t
ApQueue::Airtime(unsigned station) const
{
    return m_stations[station].airtime;
}

uint32_t
ApQueue::Packets() const
{
    return m_packets;
}

bool
ApQueue::DoEnqueue(Ptr<QueueDiscItem> item)
{
    auto id = m_ids.find(item->GetAddress());
    if (id == m_ids.end())
    {
        return false; // neighbours' addresses are known in advance, so no host broadcasts
    }
    if (m_shaper)
    {
        m_shaper->Enqueue(id->second / m_stationsPerClass, item);
    }
    else
    {
        Admit(item);
    }
    return true;
}

void
ApQueue::Admit(Ptr<QueueDiscItem> item)
{
    Station& station = m_stations[m_ids.at(item->GetAddress())];
    if (m_kind == MAC80211)
    {
        AdmitMac80211(station, item);
    }
    else if (m_packets < FIFO_LIMIT)
    {
        station.packets.emplace_back(m_arrivals++, item);
        m_packets++;
    }
}

void
ApQueue::AdmitMac80211(Station& station, Ptr<QueueDiscItem> item)
{
    Flow& flow = station.flows[item->Hash(0) % FLOWS];
    if (!flow.queue)
    {
        flow.queue = CreateObject<CoDelQueueDisc>();
        flow.queue->SetAttribute("MaxSize", StringValue(std::to_string(LIMIT_PACKETS) + "p"));
        flow.queue->SetAttribute("Interval", StringValue("100ms"));
        flow.queue->SetAttribute("Target", StringValue("20ms"));
        flow.queue->Initialize();
    }
    flow.queue->Enqueue(item);
    m_packets++;
    if (!flow.listed)
    {
        flow.listed = true;
        flow.deficit = FLOW_QUANTUM;
        station.fresh.push_back(&flow);
    }
    Schedule(station);
    if (m_packets > m_limit)
    {
        DropFromFattestFlow();
    }
}

/// __ieee80211_schedule_txq: inserts at the head; only a negative deficit moves the station from there.
void
ApQueue::Schedule(Station& station)
{
    bool packets = !station.fresh.empty() || !station.old.empty();
    if (station.listed || (!packets && (station.deficit >= 0 || Simulator::Now() - station.lastActive > ACTIVE_DURATION)))
    {
        return;
    }
    station.listed = true;
    m_active.push_front(&station);
    if (packets)
    {
        station.lastActive = Simulator::Now();
    }
}

void
ApQueue::DropFromFattestFlow()
{
    Flow* fattest = nullptr;
    for (auto& station : m_stations)
    {
        for (auto& [hash, flow] : station.flows)
        {
            if (!fattest || flow.queue->GetNBytes() > fattest->queue->GetNBytes())
            {
                fattest = &flow;
            }
        }
    }
    fattest->queue->GetInternalQueue(0)->Remove();
    m_packets--;
}

/// The station whose oldest packet has waited longest; preferred ones first.
ApQueue::Station*
ApQueue::NextFifo()
{
    Station* best = nullptr;
    for (auto& station : m_stations)
    {
        if (station.packets.empty())
        {
            continue;
        }
        if (!best || (station.preferred && !best->preferred) ||
            (station.preferred == best->preferred && station.packets.front().first < best->packets.front().first))
        {
            best = &station;
        }
    }
    return best;
}

ApQueue::Station*
ApQueue::NextMac80211()
{
    bool anyPreferred = std::any_of(m_active.begin(), m_active.end(), [](const Station* s) {
        return s->preferred && (!s->fresh.empty() || !s->old.empty());
    });
    for (;;)
    {
        auto it = std::find_if(m_active.begin(), m_active.end(), [&](const Station* s) {
            return s->preferred || !anyPreferred;
        });
        if (it == m_active.end())
        {
            return nullptr;
        }
        Station* station = *it;
        m_active.erase(it);
        if (station->deficit < 0)
        {
            station->deficit += station->weight << QUANTUM_SHIFT;
            m_active.push_back(station);
            continue;
        }
        station->listed = false;
        if (!station->fresh.empty() || !station->old.empty())
        {
            return station;
        }
    }
}

/// ieee80211_txq_airtime_check()
bool
ApQueue::MaySend(const Station& station) const
{
    return m_limitRate <= 0 || station.pending < LIMIT_LOW ||
           (m_pending < LIMIT_THRESHOLD && station.pending < LIMIT_HIGH);
}

/// ieee80211_next_txq(): passes over a station at its limit, and meanwhile
/// refills the others' deficits. Returns nullptr after one round without a
/// station that may send.
ApQueue::Station*
ApQueue::NextWithinLimits()
{
    Station* first = nullptr;
    bool eligible = false;
    while (!m_active.empty())
    {
        Station* station = m_active.front();
        if (station == first)
        {
            if (!eligible)
            {
                return nullptr;
            }
            eligible = false;
        }
        if (!first)
        {
            first = station;
        }
        bool packets = !station->fresh.empty() || !station->old.empty();
        bool may = MaySend(*station);
        bool poor = station->deficit - station->pending < 0;
        m_active.pop_front();
        if (!packets && (!poor || Simulator::Now() - station->lastActive > ACTIVE_DURATION))
        {
            station->listed = false;
            first = station == first ? nullptr : first;
            continue;
        }
        eligible |= may && packets;
        if (poor)
        {
            station->deficit += station->weight << QUANTUM_SHIFT;
        }
        if (poor || !may)
        {
            m_active.push_back(station);
            continue;
        }
        station->listed = false;
        if (packets)
        {
            return station;
        }
        first = station == first ? nullptr : first;
    }
    return nullptr;
}

/// Deficit round robin between a station's flows, new ones first (RFC 8290, 4.2).
Ptr<QueueDiscItem>
ApQueue::TakeFlows(Station& station)
{
    while (!station.fresh.empty() || !station.old.empty())
    {
        bool fresh = !station.fresh.empty();
        auto& from = fresh ? station.fresh : station.old;
        Flow* flow = from.front();
        if (flow->deficit <= 0)
        {
            flow->deficit += FLOW_QUANTUM;
            from.pop_front();
            station.old.push_back(flow);
            continue;
        }
        uint32_t before = flow->queue->GetNPackets();
        Ptr<QueueDiscItem> item = flow->queue->Dequeue();
        m_packets -= before - flow->queue->GetNPackets();
        if (item)
        {
            flow->deficit -= item->GetSize();
            return item;
        }
        from.pop_front();
        if (fresh && !station.old.empty())
        {
            station.old.push_back(flow); // so an emptied flow cannot be new again at once
        }
        else
        {
            flow->listed = false;
        }
    }
    return nullptr;
}

Ptr<QueueDiscItem>
ApQueue::Take(Station& station)
{
    if (m_kind == MAC80211)
    {
        return TakeFlows(station);
    }
    if (station.packets.empty())
    {
        return nullptr;
    }
    Ptr<QueueDiscItem> item = station.packets.front().second;
    station.packets.pop_front();
    m_packets--;
    return item;
}

Ptr<QueueDiscItem>
ApQueue::DoDequeue()
{
    for (;;)
    {
        if (!m_filling)
        {
            if (m_limitRate <= 0 && m_batches.size() >= m_depth)
            {
                return nullptr;
            }
            m_filling = m_kind == FIFO ? NextFifo() : m_limitRate > 0 ? NextWithinLimits() : NextMac80211();
            if (!m_filling)
            {
                return nullptr;
            }
            m_room = m_filling->aggregate;
            m_batches.push_back({++m_batch, 0});
        }
        Ptr<QueueDiscItem> item = m_room > 0 && MaySend(*m_filling) ? Take(*m_filling) : nullptr;
        if (item)
        {
            m_room--;
            m_batches.back().outstanding++;
            m_sent.emplace(item->GetPacket()->GetUid(), m_batch);
            m_filling->delivered += item->GetSize();
            if (m_limitRate > 0)
            {
                double us = (item->GetSize() + FRAME_HEADERS) * 8 / m_limitRate + m_limitOverhead;
                m_filling->pending += us;
                m_pending += us;
                m_estimated[item->GetPacket()->GetUid()] = {m_filling, us};
            }
            RunSoon(); // QueueDisc::Run() stops after one packet if the queue disc has no queues of ns-3's
            return item;
        }
        if (m_batches.back().outstanding == 0)
        {
            m_batches.pop_back();
        }
        if (m_kind == MAC80211)
        {
            Schedule(*m_filling);
        }
        m_filling = nullptr;
    }
}

void
ApQueue::Left(Ptr<const WifiMpdu> mpdu)
{
    auto sent = m_sent.find(mpdu->GetPacket()->GetUid());
    if (sent == m_sent.end())
    {
        return; // a management frame
    }
    if (auto estimated = m_estimated.find(sent->first); estimated != m_estimated.end())
    {
        estimated->second.first->pending -= estimated->second.second;
        m_pending -= estimated->second.second;
        m_estimated.erase(estimated);
    }
    auto batch = std::find_if(m_batches.begin(), m_batches.end(), [&](const Batch& b) { return b.id == sent->second; });
    m_sent.erase(sent);
    if (--batch->outstanding == 0 && !(m_filling && batch->id == m_batch))
    {
        m_batches.erase(batch);
    }
    RunSoon();
}

void
ApQueue::RunSoon()
{
    if (!m_runPending)
    {
        m_runPending = true;
        Simulator::ScheduleNow([this] {
            m_runPending = false;
            Run();
        });
    }
}

bool
ApQueue::CheckConfig()
{
    return true;
}

void
ApQueue::InitializeParams()
{
}

} // namespace dense
