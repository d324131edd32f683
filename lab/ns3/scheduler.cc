// SPDX-License-Identifier: Apache-2.0
#include "scheduler.h"

#include "ns3/fq-codel-queue-disc.h"
#include "ns3/fifo-queue-disc.h"
#include "ns3/qos-txop.h"
#include "ns3/simulator.h"
#include "ns3/string.h"
#include "ns3/uinteger.h"
#include "ns3/wifi-mac.h"
#include "ns3/wifi-psdu.h"
#include "ns3/wifi-remote-station-manager.h"

#include <algorithm>
#include <cmath>
#include <iostream>

using namespace ns3;

namespace dense
{

namespace
{

// wifirrd's defaults: files/etc/config/wifirr
constexpr unsigned WEIGHT_ACTIVE = 384;
constexpr unsigned WEIGHT_WAITING = 1;
constexpr unsigned WEIGHT_OWN = 256; // mac80211's, for stations that are not scheduled
constexpr double TRICKLE_KBIT = 20;
constexpr unsigned RTS_BYTES = 500;
constexpr unsigned RTS_OFF = 65535;

// hostapd's for best effort: for clients CWmin 15, CWmax 1023; for the access point itself CWmin 15, CWmax 63
constexpr unsigned OWN_EXPONENT = 4;
constexpr uint32_t OWN_CW_MAX = 1023;
constexpr unsigned AP_EXPONENT_MAX = 6;

// package/wifirr-sched/src/htb.c
constexpr double FRAME = 1514; // bytes
constexpr double OPEN = 10e9 / 8; // bytes/s
constexpr double SHARE_EXEMPT = 0.02;
constexpr double SHARE_WAITING = 0.2;
constexpr double SHARE_SOON = 0.1;
constexpr double SHARE_ACTIVE = 0.55;
constexpr unsigned LEAD_SLACK_MS = 5;
constexpr unsigned LEAF_PACKETS = 2 * 131072 / 2304; // memory limit divided by a frame's buffer

// The paper, section 6.2
constexpr unsigned MIDDLEBOX_ACTIVE = 5;
constexpr unsigned MIDDLEBOX_SLOT_MS = 1600;
constexpr double MIDDLEBOX_CEIL_KBIT = 100;
constexpr double MIDDLEBOX_WIRE_KBIT = 100e3;

// WiFox with the parameters of the paper's section 6.1. The paper does not give
// the steepness and the prioritized access; here the latter is EDCA's contention
// window for voice.
const Time WIFOX_SLOT = MilliSeconds(10);
constexpr unsigned WIFOX_SLOTS = 10;
constexpr double WIFOX_QUEUE = 512; // packets
constexpr double WIFOX_STEEPNESS = 12;
constexpr unsigned WIFOX_CW_MIN = 3;
constexpr unsigned WIFOX_CW_MAX = 15;
constexpr unsigned WIFOX_AIFSN = 1;

double
BytesPerSecond(double kbit)
{
    return kbit * 1000 / 8;
}

unsigned
DebtMs(double rate)
{
    return FRAME * 1000 / rate + 1;
}

} // namespace

StationScheduler::StationScheduler(const Options& options, Ptr<ApQueue> queue, Ptr<WifiNetDevice> ap, NetDeviceContainer devices, const Medium& medium)
    : m_options(options),
      m_queue(queue),
      m_ap(ap),
      m_devices(devices),
      m_stations(devices.GetN()),
      m_medium(medium),
      m_delivered(m_stations),
      m_received(m_stations),
      m_watched(m_stations),
      m_exponent(OWN_EXPONENT),
      m_sent(m_stations),
      m_sentTo(m_stations)
{
    unsigned stations = m_stations;
    if (ap->GetMac()->GetQosSupported())
    {
        ap->GetMac()->GetQosTxop(AC_BE)->SetMaxCw((1U << AP_EXPONENT_MAX) - 1);
        WatchBeacons();
    }
    if (options.windows != "off")
    {
        WatchContention();
    }
    const std::string& form = options.form;
    if (form == "none")
    {
        SetRts(options.rts && !m_contention);
    }
    else if (form == "ap")
    {
        SetRts(options.rts);
        StartPolicy(POLICY_PAPER);
    }
    else if (form == "wifirr")
    {
        StartPolicy(POLICY_BACKLOG);
    }
    else if (form == "wifirr-htb")
    {
        policy_config config;
        policy_defaults(&config, POLICY_BACKLOG, true);
        unsigned slotMs = options.slotMs ? options.slotMs : config.slot_ms;
        queue->SetShaper(std::make_unique<Shaper>(stations, OPEN, [slotMs] {
            // waiting for a turn is not congestion
            auto leaf = CreateObject<FqCoDelQueueDisc>();
            leaf->SetAttribute("MaxSize", StringValue(std::to_string(LEAF_PACKETS) + "p"));
            leaf->SetAttribute("Flows", UintegerValue(32));
            leaf->SetAttribute("Target", StringValue("50ms"));
            leaf->SetAttribute("Interval", StringValue(std::to_string(slotMs) + "ms"));
            leaf->SetQuantum(1514);
            return leaf;
        }), 1);
        StartPolicy(POLICY_BACKLOG);
    }
    else if (form == "middlebox")
    {
        SetRts(options.rts);
        unsigned active = options.active ? options.active : MIDDLEBOX_ACTIVE;
        queue->SetShaper(std::make_unique<Shaper>((stations + active - 1) / active, BytesPerSecond(MIDDLEBOX_WIRE_KBIT), [] {
            auto leaf = CreateObject<FifoQueueDisc>();
            leaf->SetAttribute("MaxSize", StringValue("1000p"));
            return leaf;
        }), active);
        MiddleboxSlot();
    }
    else if (form == "wifox")
    {
        SetRts(options.rts);
        WifoxInterval();
    }
}

bool
StationScheduler::IsWaiting(unsigned station) const
{
    if (!m_policy)
    {
        return false;
    }
    policy_level level = m_policy->client[station].level;
    return level != POLICY_OPEN && level != POLICY_ACTIVE;
}

uint64_t
StationScheduler::Engagements() const
{
    return m_policy ? m_policy->engagements : 0;
}

unsigned
StationScheduler::Exponent() const
{
    return m_exponent;
}

double
StationScheduler::MeanExponent() const
{
    Time now = Simulator::Now();
    return now.IsZero() ? m_exponent : (m_exponentSum + m_exponent * (now - m_announcedAt).GetSeconds()) / now.GetSeconds();
}

/// wifirrd measures, and announces windows, only where it serves clients (radio.c).
bool
StationScheduler::IsNeighbour(unsigned station) const
{
    return m_options.mesh && station == m_stations - 1;
}

bool
StationScheduler::IsNeighbour(Mac48Address address) const
{
    return m_options.mesh && m_devices.Get(m_stations - 1)->GetAddress() == address;
}

/// Stations take the windows that the AP announces from the next beacon. ns-3's AP
/// announces its own parameters instead, and its stations take these from every
/// beacon. So the stations' windows are set again right after each beacon.
void
StationScheduler::WatchBeacons()
{
    for (unsigned i = 0; i < m_stations; i++)
    {
        DynamicCast<WifiNetDevice>(m_devices.Get(i))->GetMac()->TraceConnectWithoutContext(
            "BeaconArrival",
            Callback<void, Time>([this, i](Time) { Simulator::ScheduleNow(&StationScheduler::TakeWindow, this, i); }));
    }
}

void
StationScheduler::WatchContention()
{
    if (m_options.windows != "auto")
    {
        unsigned exponent = std::stoul(m_options.windows);
        Announce(exponent, std::min(exponent, AP_EXPONENT_MAX));
        return;
    }
    auto manager = m_ap->GetRemoteStationManager();
    for (const char* trace : {"MacTxDataFailed", "MacTxRtsFailed"})
    {
        manager->TraceConnectWithoutContext(trace, Callback<void, Mac48Address>([this](Mac48Address to) { m_failed += !IsNeighbour(to); }));
    }
    m_ap->GetPhy()->TraceConnectWithoutContext(
        "PhyTxPsduBegin",
        Callback<void, WifiConstPsduMap, WifiTxVector, double>([this](WifiConstPsduMap psdus, WifiTxVector, double) {
            auto& psdu = psdus.begin()->second;
            // each MPDU of an aggregate counts, as in drivers; the frame after an answered RTS counts, not the RTS
            m_frames += psdu->GetHeader(0).IsData() && !psdu->GetAddr1().IsGroup() && !IsNeighbour(psdu->GetAddr1()) ? psdu->GetNMpdus() : 0;
        }));
    contention_config config{};
    config.windows = m_ap->GetMac()->GetQosSupported();
    config.rts = m_options.rts;
    config.own_exponent = config.ap_min = OWN_EXPONENT;
    config.ap_max = AP_EXPONENT_MAX;
    policy_config defaults;
    policy_defaults(&defaults, POLICY_BACKLOG, false);
    config.busy_permille = defaults.busy_permille;
    m_contention = std::make_unique<contention>();
    contention_init(m_contention.get(), &config);
    Simulator::Schedule(MilliSeconds(CONTENTION_TICK_MS), &StationScheduler::ContentionTick, this);
}

/// As in radio.c.
void
StationScheduler::ContentionTick()
{
    Time now = Simulator::Now();
    double seconds = (now - m_contentionAt).GetSeconds();
    contention_sample sample{};
    for (unsigned i = 0; i < m_stations && !IsNeighbour(i); i++)
    {
        uint64_t bytes = m_queue->Received(i) - m_sent[i];
        m_sent[i] += bytes;
        sample.contenders += bytes * 8 > CONTENTION_CLIENT_BPS * seconds;
        sample.bytes += bytes + m_queue->Delivered(i) - m_sentTo[i];
        m_sentTo[i] = m_queue->Delivered(i);
    }
    sample.exchanging = sample.contenders; // no station only receives: a download sends ACKs
    sample.aggregating = m_ap->GetMac()->GetHtSupported() ? sample.contenders : 0;
    sample.kbit = m_options.linkKbit;
    sample.busy_permille = 1000 * (m_medium.Busy() - m_contentionBusy).GetSeconds() / seconds;
    // m_frames includes failed frames, but no frame follows a failed RTS
    uint64_t tried = std::max(m_frames, m_failed);
    sample.failed_permille = tried ? 1000 * m_failed / tried : CONTENTION_UNKNOWN;
    m_contentionAt = now;
    m_contentionBusy = m_medium.Busy();
    m_frames = m_failed = 0;
    contention_tick(m_contention.get(), now.GetMilliSeconds(), &sample);
    if (m_contention->exponent != m_exponent)
    {
        Announce(m_contention->exponent, m_contention->ap_exponent);
    }
    if (m_contention->rts != m_rts)
    {
        m_rts = m_contention->rts;
        SetRts(m_rts);
    }
    if (m_options.trace)
    {
        char why[160];
        contention_explain(m_contention.get(), why, sizeof(why));
        std::cerr << now.GetMilliSeconds() << " CWmin 2^" << m_exponent << (m_rts ? ", RTS" : "") << ", " << sample.contenders
                  << " contend, busy " << sample.busy_permille << ", failed " << sample.failed_permille << ": " << why << "\n";
    }
    Simulator::Schedule(MilliSeconds(CONTENTION_TICK_MS), &StationScheduler::ContentionTick, this);
}

void
StationScheduler::Announce(unsigned exponent, unsigned apExponent)
{
    Time now = Simulator::Now();
    m_exponentSum += m_exponent * (now - m_announcedAt).GetSeconds();
    m_announcedAt = now;
    m_exponent = exponent;
    m_ap->GetMac()->GetQosTxop(AC_BE)->SetMinCw((1U << apExponent) - 1);
}

void
StationScheduler::TakeWindow(unsigned station)
{
    Ptr<QosTxop> txop = DynamicCast<WifiNetDevice>(m_devices.Get(station))->GetMac()->GetQosTxop(AC_BE);
    uint32_t window = (1U << (IsNeighbour(station) ? OWN_EXPONENT : m_exponent)) - 1;
    txop->SetMinCw(window);
    txop->SetMaxCw(std::max(window, OWN_CW_MAX));
}

void
StationScheduler::SetRts(bool on)
{
    m_ap->GetRemoteStationManager()->SetAttribute("RtsCtsThreshold", UintegerValue(on ? RTS_BYTES : RTS_OFF));
}

void
StationScheduler::StartPolicy(policy_mode mode)
{
    policy_config config;
    policy_defaults(&config, mode, m_options.form == "wifirr-htb");
    if (mode == POLICY_PAPER)
    {
        config.engage = POLICY_ALWAYS;
    }
    if (m_options.active)
    {
        config.active = m_options.active;
    }
    if (m_options.slotMs)
    {
        config.slot_ms = m_options.slotMs;
    }
    m_policy = std::make_unique<policy>();
    policy_init(m_policy.get(), &config);
    for (unsigned i = 0; i < m_stations; i++)
    {
        policy_add(m_policy.get(), IsNeighbour(i) ? POLICY_CLIENT_NEIGHBOUR : 0); // ids count from 0, as stations do
    }
    UpdateHtbRates();
    Tick();
}

/// As wifirrd's main loop: reads, decides, applies.
void
StationScheduler::Tick()
{
    Shaper* shaper = m_queue->GetShaper();
    for (unsigned i = 0; i < m_stations; i++)
    {
        uint64_t delivered = shaper ? shaper->Sent(i) : m_queue->Delivered(i);
        policy_sample(m_policy.get(), i, shaper ? shaper->Waiting(i) : m_queue->Waiting(i), delivered - m_delivered[i]);
        m_delivered[i] = delivered;
        policy_received(m_policy.get(), i, m_queue->Received(i) - m_received[i]);
        m_received[i] = m_queue->Received(i);
    }
    Time now = Simulator::Now();
    if (!shaper)
    {
        // as in airtime.c
        for (unsigned i = 0; i < m_stations; i++)
        {
            effect_observe(&m_effect, &m_watched[i], m_policy->client[i].level, m_queue->Waiting(i) > 0, m_queue->Airtime(i),
                           (now - m_readAt).GetMilliSeconds());
        }
        m_readAt = now;
    }
    policy_set_aside(m_policy.get(), m_contention && m_contention->instead_of_turns ? POLICY_ASIDE_WINDOWS
                                     : effect_none(&m_effect)                       ? POLICY_ASIDE_NO_EFFECT
                                                                                    : POLICY_ASIDE_NOT);
    if (now - m_busyAt >= Seconds(1))
    {
        m_busy = 1000 * (m_medium.Busy() - m_busyBefore).GetSeconds() / (now - m_busyAt).GetSeconds();
        m_busyBefore = m_medium.Busy();
        m_busyAt = now;
    }
    uint64_t wake = policy_tick(m_policy.get(), now.GetMilliSeconds(), m_busy);
    Apply();
    if (m_options.trace)
    {
        std::cerr << now.GetMilliSeconds() << " busy " << m_busy << " demanding " << m_policy->demanding
                  << (m_policy->engaged ? " engaged:" : " -");
        for (unsigned i = 0; i < m_stations; i++)
        {
            if (m_policy->client[i].level == POLICY_ACTIVE)
            {
                std::cerr << " " << i << "(" << m_policy->client[i].waiting << " B, " << m_policy->client[i].rate_bps << " bit/s)";
            }
        }
        std::cerr << "\n";
    }
    Simulator::Schedule(MilliSeconds(std::max<uint64_t>(wake, now.GetMilliSeconds() + 1)) - now, &StationScheduler::Tick, this);
}

void
StationScheduler::Apply()
{
    if (m_queue->GetShaper())
    {
        ApplyHtb();
    }
    else
    {
        for (unsigned i = 0; i < m_stations; i++)
        {
            if (m_options.form == "ap")
            {
                m_queue->SetPreferred(i, !IsWaiting(i));
            }
            else
            {
                bool open = m_policy->client[i].level == POLICY_OPEN;
                m_queue->SetWeight(i, open ? WEIGHT_OWN : policy_weight(m_policy.get(), i, WEIGHT_ACTIVE, WEIGHT_WAITING));
            }
        }
    }
    if (m_options.rts && m_options.form != "ap" && !m_contention)
    {
        SetRts(m_policy->engaged && m_ap->GetMac()->GetHtSupported());
    }
}

/// As update_rates(), soon_rate() and next_rate() in htb.c.
void
StationScheduler::UpdateHtbRates()
{
    if (!m_queue->GetShaper())
    {
        return;
    }
    double link = BytesPerSecond(m_options.linkKbit);
    policy_config& config = m_policy->config;
    double trickle = BytesPerSecond(m_options.trickleKbit > 0 ? m_options.trickleKbit : TRICKLE_KBIT);
    m_trickle = std::min(trickle, link * SHARE_WAITING / m_stations);
    m_soon = std::max(m_trickle, link * SHARE_SOON / (1 + 20 * config.active / config.slot_ms));
    m_next = std::sqrt(m_trickle * m_soon);
    config.next_lead_ms = std::min(DebtMs(m_trickle) + LEAD_SLACK_MS, 2 * config.slot_ms);
    config.soon_lead_ms = std::min(DebtMs(m_next) + LEAD_SLACK_MS, config.slot_ms);
}

/// As apply() and client_class() in htb.c.
void
StationScheduler::ApplyHtb()
{
    Shaper* shaper = m_queue->GetShaper();
    bool changed = m_htbScheduling != m_policy->scheduling;
    m_htbScheduling = m_policy->scheduling;
    double link = m_htbScheduling ? BytesPerSecond(m_options.linkKbit) : OPEN;
    if (changed)
    {
        shaper->SetLink(link);
    }
    for (unsigned i = 0; i < m_stations; i++)
    {
        if (!changed && !m_policy->client[i].changed)
        {
            continue;
        }
        double rate = m_trickle;
        double ceil = m_trickle;
        switch (m_policy->client[i].level)
        {
        case POLICY_OPEN:
            rate = link * SHARE_EXEMPT / POLICY_CLIENTS_MAX;
            ceil = link;
            break;
        case POLICY_ACTIVE:
            rate = link * SHARE_ACTIVE / m_policy->config.active;
            ceil = link;
            break;
        case POLICY_SOON:
            rate = ceil = m_soon;
            break;
        case POLICY_NEXT:
            rate = ceil = m_next;
            break;
        case POLICY_IDLE:
        case POLICY_LIGHT:
        case POLICY_WAITING:
            break;
        }
        shaper->Set(i, rate, ceil);
    }
}

void
StationScheduler::MiddleboxSlot()
{
    unsigned active = m_options.active ? m_options.active : MIDDLEBOX_ACTIVE;
    unsigned groups = (m_stations + active - 1) / active;
    double fast = BytesPerSecond(MIDDLEBOX_WIRE_KBIT);
    double slow = BytesPerSecond(m_options.trickleKbit > 0 ? m_options.trickleKbit : MIDDLEBOX_CEIL_KBIT);
    for (unsigned i = 0; i < groups; i++)
    {
        double rate = i == m_group ? fast : slow;
        m_queue->GetShaper()->Set(i, rate, rate);
    }
    m_group = (m_group + 1) % groups;
    Simulator::Schedule(MilliSeconds(m_options.slotMs ? m_options.slotMs : MIDDLEBOX_SLOT_MS), &StationScheduler::MiddleboxSlot, this);
}

void
StationScheduler::WifoxInterval()
{
    double fill = std::min(m_queue->Packets() / WIFOX_QUEUE, 1.);
    unsigned high = std::lround(WIFOX_SLOTS / (1 + std::exp(-WIFOX_STEEPNESS * (fill - 0.5))));
    WifoxPriority(high > 0);
    if (high > 0 && high < WIFOX_SLOTS)
    {
        Simulator::Schedule(high * WIFOX_SLOT, &StationScheduler::WifoxPriority, this, false);
    }
    Simulator::Schedule(WIFOX_SLOTS * WIFOX_SLOT, &StationScheduler::WifoxInterval, this);
}

void
StationScheduler::WifoxPriority(bool high)
{
    Ptr<Txop> txop = m_ap->GetMac()->GetTxop();
    if (!txop)
    {
        txop = m_ap->GetMac()->GetQosTxop(AC_BE);
    }
    static const uint32_t cwMin = txop->GetMinCw();
    static const uint32_t cwMax = txop->GetMaxCw();
    static const uint8_t aifsn = txop->GetAifsn();
    txop->SetMinCw(high ? WIFOX_CW_MIN : cwMin);
    txop->SetMaxCw(high ? WIFOX_CW_MAX : cwMax);
    txop->SetAifsn(high ? WIFOX_AIFSN : aifsn);
}

} // namespace dense
