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

/// Everybody hears everybody equally loud: no frame is lost but by collision,
/// none is captured, nobody is hidden.
///
/// ns-3's own channel lets every station receive every frame in full: with 30
/// stations that is nearly all of the simulator's work, and its only effect on
/// those whom a frame is not for is that they find the channel busy. Here only
/// its receivers receive it, through ns-3's PHY; the others are told that the
/// channel is busy. Frames that overlap reach each other's receivers as
/// interference. (NAV and EIFS of the others are not modelled: answers follow
/// within SIFS, and after a collision nobody could decode a preamble.)
class Medium
{
  public:
    /// Also the PHY's MAC address: who a frame is for.
    void Add(ns3::Ptr<ns3::WifiPhy> phy, ns3::Mac48Address address);
    void Send(Phy* sender, ns3::Ptr<const ns3::WifiPpdu> ppdu);

    /// Airtime in use since the start, and that of frames which overlapped.
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
    ns3::Time m_start, m_end;     // of the stretch of airtime under way
    ns3::Time m_busy, m_collided; // before it
    bool m_overlap = false;
};

class Phy : public ns3::YansWifiPhy
{
  public:
    static ns3::TypeId GetTypeId();
    void Receive(ns3::Ptr<const ns3::WifiPpdu> ppdu);
    void Interfere(ns3::Time duration);
    void Busy(ns3::Time duration);

  private:
    friend class Medium;
    void StartTx(ns3::Ptr<const ns3::WifiPpdu> ppdu, const ns3::WifiTxVector& txVector) override;
    Medium* m_medium = nullptr;
};

/// Makes Phys.
class PhyHelper : public ns3::YansWifiPhyHelper
{
  public:
    PhyHelper();
};

} // namespace dense
