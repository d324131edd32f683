// SPDX-License-Identifier: Apache-2.0
#include "medium.h"

#include "ns3/double.h"
#include "ns3/interference-helper.h"
#include "ns3/simulator.h"
#include "ns3/string.h"
#include "ns3/uinteger.h"
#include "ns3/wifi-phy-state-helper.h"
#include "ns3/wifi-psdu.h"
#include "ns3/wifi-utils.h"

#include <algorithm>

using namespace ns3;

namespace dense
{

namespace
{

const Time PROPAGATION = NanoSeconds(20); // 6 m; stations that start within this time collide
constexpr double RX_POWER_DBM = -50;
constexpr double WEAKEST_DBM = -95; // ns-3's PHY does not look for a preamble below -82 dBm, but chips do

bool
Contains(const std::vector<Phy*>& phys, Phy* phy)
{
    return std::find(phys.begin(), phys.end(), phy) != phys.end();
}

} // namespace

void
Medium::Add(Ptr<WifiPhy> phy, Mac48Address address, double lossDb)
{
    auto own = DynamicCast<Phy>(phy);
    own->m_medium = this;
    own->m_lossDb = lossDb;
    m_phys.push_back(PeekPointer(own));
    m_byAddress[address] = PeekPointer(own);
}

void
Medium::Send(Phy* sender, Ptr<const WifiPpdu> ppdu)
{
    Account(ppdu->GetTxDuration());
    Frame frame{sender, ppdu, Simulator::Now() + PROPAGATION + ppdu->GetTxDuration(), {}};
    Mac48Address to = ppdu->GetPsdu()->GetAddr1();
    if (to.IsGroup())
    {
        std::copy_if(m_phys.begin(), m_phys.end(), std::back_inserter(frame.receivers), [&](Phy* phy) {
            return phy != sender;
        });
    }
    else if (auto receiver = m_byAddress.find(to); receiver != m_byAddress.end())
    {
        frame.receivers.push_back(receiver->second);
    }
    Simulator::Schedule(PROPAGATION, &Medium::Deliver, this, frame);
}

void
Medium::Deliver(Frame frame)
{
    Time now = Simulator::Now();
    Time duration = frame.ppdu->GetTxDuration();
    m_inAir.remove_if([&](const Frame& other) { return other.end <= now; });
    std::vector<Phy*> disturbed;
    for (auto& other : m_inAir)
    {
        for (Phy* phy : other.receivers)
        {
            if (phy != frame.sender && !Contains(frame.receivers, phy) && !Contains(disturbed, phy))
            {
                disturbed.push_back(phy);
            }
        }
        for (Phy* phy : frame.receivers)
        {
            if (phy != other.sender && !Contains(other.receivers, phy))
            {
                phy->Interfere(other.end - now, *other.sender);
            }
        }
    }
    for (Phy* phy : m_phys)
    {
        if (phy == frame.sender)
        {
            continue;
        }
        if (Contains(frame.receivers, phy))
        {
            phy->Receive(frame.ppdu, *frame.sender);
            continue;
        }
        if (Contains(disturbed, phy))
        {
            phy->Interfere(duration, *frame.sender);
        }
        phy->Busy(duration);
    }
    m_inAir.push_back(std::move(frame));
}

void
Medium::Account(Time duration)
{
    Time now = Simulator::Now();
    frames++;
    if (now < m_end)
    {
        m_overlap = true;
        m_end = std::max(m_end, now + duration);
        return;
    }
    m_busy += m_end - m_start;
    if (m_overlap)
    {
        m_collided += m_end - m_start;
    }
    m_overlap = false;
    m_start = now;
    m_end = now + duration;
}

Time
Medium::Busy() const
{
    return m_busy + std::min(m_end, Simulator::Now()) - m_start;
}

Time
Medium::Collided() const
{
    return m_overlap ? m_collided + std::min(m_end, Simulator::Now()) - m_start : m_collided;
}

NS_OBJECT_ENSURE_REGISTERED(Phy);

TypeId
Phy::GetTypeId()
{
    static TypeId tid = TypeId("dense::Phy").SetParent<YansWifiPhy>().AddConstructor<Phy>();
    return tid;
}

void
Phy::StartTx(Ptr<const WifiPpdu> ppdu, const WifiTxVector&)
{
    m_medium->Send(this, ppdu);
}

RxPowerWattPerChannelBand
Phy::PowerFrom(const Phy& sender) const
{
    RxPowerWattPerChannelBand power;
    power.insert({std::make_pair(0, 0), DbmToW(RX_POWER_DBM - std::max(m_lossDb, sender.m_lossDb))});
    return power;
}

void
Phy::Receive(Ptr<const WifiPpdu> ppdu, const Phy& sender)
{
    RxPowerWattPerChannelBand power = PowerFrom(sender);
    StartReceivePreamble(ppdu, power, ppdu->GetTxDuration());
}

void
Phy::Interfere(Time duration, const Phy& sender)
{
    RxPowerWattPerChannelBand power = PowerFrom(sender);
    m_interference->AddForeignSignal(duration, power);
}

void
Phy::Busy(Time duration)
{
    m_state->SwitchMaybeToCcaBusy(duration, WIFI_CHANLIST_PRIMARY, {});
}

PhyHelper::PhyHelper(unsigned streams)
{
    m_phy.at(0).SetTypeId("dense::Phy");
    SetChannel(YansWifiChannelHelper::Default().Create()); // ns-3 requires one; nothing is sent on it
    SetPreambleDetectionModel("ns3::ThresholdPreambleDetectionModel", "MinimumRssi", DoubleValue(WEAKEST_DBM));
    Set("ChannelSettings", StringValue("{1, 20, BAND_2_4GHZ, 0}"));
    for (const char* attribute : {"Antennas", "MaxSupportedTxSpatialStreams", "MaxSupportedRxSpatialStreams"})
    {
        Set(attribute, UintegerValue(streams));
    }
}

void
PhyHelper::SetWide()
{
    Set("ChannelSettings", StringValue("{42, 80, BAND_5GHZ, 0}"));
}

} // namespace dense
