// SPDX-License-Identifier: Apache-2.0
// The channel that all stations share, and what happens on it.
#pragma once

#include "ns3/mac48-address.h"
#include "ns3/wifi-ppdu.h"
#include "ns3/yans-wifi-helper.h"
#include "ns3/yans-wifi-phy.h"

#include <list>
#include <map>
#include <vector>

namespace dense
{

class Phy;

/// All stations hear one another, so none is hidden. Unless some are farther away,
/// they do so equally loud: only collisions lose frames, and no frame is captured.
///
/// With ns-3's own channel, every station receives every frame in full. With 30
/// stations, that is nearly all of the simulator's work. Its only effect on
/// stations that a frame is not for is that they find the channel busy. Here,
/// only a frame's receivers receive it, through ns-3's PHY; the others are told
/// that the channel is busy. Frames that overlap reach each other's receivers as
/// interference. (NAV and EIFS of the others are not modelled: answers follow
/// within SIFS, and after a collision no station could decode a preamble.)
class Medium
{
  public:
    /// The MAC address tells which frames are for this PHY. A frame is so many dB weaker where it arrives as the
    /// farther of its two ends loses.
    void Add(ns3::Ptr<ns3::WifiPhy> phy, ns3::Mac48Address address, double lossDb = 0);
    void Send(Phy* sender, ns3::Ptr<const ns3::WifiPpdu> ppdu);

    /// Time in which the channel was in use since the start, and the part of it with overlapping frames.
    ns3::Time Busy() const;
    ns3::Time Collided() const;
    uint64_t frames = 0;

  private:
    struct Frame
    {
        Phy* sender;
        ns3::Ptr<const ns3::WifiPpdu> ppdu;
        ns3::Time end;
        std::vector<Phy*> receivers;
    };

    void Deliver(Frame frame);
    void Account(ns3::Time duration);

    std::vector<Phy*> m_phys;
    std::map<ns3::Mac48Address, Phy*> m_byAddress;
    std::list<Frame> m_inAir;
    ns3::Time m_start, m_end;     // of the current busy period
    ns3::Time m_busy, m_collided; // totals before it
    bool m_overlap = false;
};

class Phy : public ns3::YansWifiPhy
{
  public:
    static ns3::TypeId GetTypeId();
    void Receive(ns3::Ptr<const ns3::WifiPpdu> ppdu, const Phy& sender);
    void Interfere(ns3::Time duration, const Phy& sender);
    void Busy(ns3::Time duration);

  private:
    friend class Medium;
    void StartTx(ns3::Ptr<const ns3::WifiPpdu> ppdu, const ns3::WifiTxVector& txVector) override;
    ns3::RxPowerWattPerChannelBand PowerFrom(const Phy& sender) const;
    Medium* m_medium = nullptr;
    double m_lossDb = 0;
};

/// Makes Phys, of 20 MHz at 2.4 GHz.
class PhyHelper : public ns3::YansWifiPhyHelper
{
  public:
    explicit PhyHelper(unsigned streams = 1);
    /// 80 MHz at 5 GHz instead.
    void SetWide();
};

} // namespace dense
