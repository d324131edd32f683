// SPDX-License-Identifier: Apache-2.0
// Is the medium honest? The share of transmissions that fail when n stations
// of 802.11g always have a frame to send, beside Bianchi's model (IEEE JSAC
// 18(3), 2000). Prints one row of JSON.
#include "medium.h"

#include "ns3/core-module.h"
#include "ns3/network-module.h"
#include "ns3/wifi-module.h"

#include <cmath>
#include <cstdio>
#include <iostream>

using namespace ns3;
using namespace dense;

namespace
{

constexpr unsigned CW_MAX = 1023;

/// Bianchi's fixed point: tau is the chance that a station sends in a slot, p that it collides.
double
Model(unsigned n, unsigned cwMin)
{
    double W = cwMin + 1;
    double M = std::log2((CW_MAX + 1) / W); // doublings
    double low = 0;
    double high = 1;
    while (high - low > 1e-12)
    {
        double p = (low + high) / 2;
        double tau = 2 * (1 - 2 * p) / ((1 - 2 * p) * (W + 1) + p * W * (1 - std::pow(2 * p, M)));
        (1 - std::pow(1 - tau, n - 1) > p ? low : high) = p;
    }
    return low;
}

} // namespace

int
main(int argc, char** argv)
{
    unsigned stations = 5;
    unsigned cwMin = 15;
    unsigned seed = 1;
    double seconds = 5;
    CommandLine cmd(__FILE__);
    cmd.AddValue("stations", "2 to 60", stations);
    cmd.AddValue("cwmin", "15, 31, 63, 127, 255, 511 or 1023 slots", cwMin);
    cmd.AddValue("seed", "of all random numbers, from 1", seed);
    cmd.AddValue("seconds", "simulated", seconds);
    cmd.Parse(argc, argv);
    if (stations < 2 || stations > 60 || cwMin < 15 || cwMin > CW_MAX || (cwMin & (cwMin + 1)) || seed < 1 || seconds <= 0)
    {
        std::cerr << "bianchi: --stations must be 2 to 60, --cwmin a power of two less one from 15 to 1023, --seed and --seconds above 0\n";
        return 2;
    }
    RngSeedManager::SetSeed(20161);
    RngSeedManager::SetRun(seed);
    // The model's stations never give up on a frame.
    Config::SetDefault("ns3::WifiRemoteStationManager::MaxSlrc", UintegerValue(100));
    Config::SetDefault("ns3::WifiRemoteStationManager::MaxSsrc", UintegerValue(100));
    Config::SetDefault("ns3::WifiMacQueue::MaxDelay", TimeValue(Seconds(1000)));

    NodeContainer nodes(stations + 1); // the last one receives
    WifiHelper wifi;
    wifi.SetStandard(WIFI_STANDARD_80211g);
    wifi.SetRemoteStationManager("ns3::ConstantRateWifiManager", "DataMode", StringValue("ErpOfdmRate54Mbps"),
                                 "ControlMode", StringValue("ErpOfdmRate24Mbps"));
    PhyHelper phy;
    WifiMacHelper mac;
    mac.SetType("ns3::AdhocWifiMac", "QosSupported", BooleanValue(false));
    NetDeviceContainer devices = wifi.Install(phy, mac, nodes);
    wifi.AssignStreams(devices, 1000);
    Medium medium;
    for (unsigned i = 0; i < devices.GetN(); i++)
    {
        auto device = DynamicCast<WifiNetDevice>(devices.Get(i));
        device->GetMac()->GetTxop()->SetMinCw(cwMin);
        device->GetMac()->GetTxop()->SetMaxCw(CW_MAX);
        medium.Add(device->GetPhy(), device->GetMac()->GetAddress());
    }
    PacketSocketHelper sockets;
    sockets.Install(nodes);

    uint64_t sent = 0;
    uint64_t failed = 0;
    bool counting = false;
    for (unsigned i = 0; i < stations; i++)
    {
        auto device = DynamicCast<WifiNetDevice>(devices.Get(i));
        device->GetPhy()->TraceConnectWithoutContext(
            "PhyTxPsduBegin",
            Callback<void, WifiConstPsduMap, WifiTxVector, double>([&](WifiConstPsduMap psdus, WifiTxVector, double) {
                sent += counting && psdus.begin()->second->GetHeader(0).IsData();
            }));
        device->GetRemoteStationManager()->TraceConnectWithoutContext(
            "MacTxDataFailed", Callback<void, Mac48Address>([&](Mac48Address) { failed += counting; }));
        PacketSocketAddress to;
        to.SetSingleDevice(device->GetIfIndex());
        to.SetPhysicalAddress(devices.Get(stations)->GetAddress());
        to.SetProtocol(1);
        auto client = CreateObject<PacketSocketClient>();
        client->SetRemote(to);
        client->SetAttribute("PacketSize", UintegerValue(1500));
        client->SetAttribute("MaxPackets", UintegerValue(0));
        client->SetAttribute("Interval", TimeValue(Seconds(1500 * 8 / 40e6)));
        nodes.Get(i)->AddApplication(client);
    }
    Simulator::Schedule(Seconds(0.5), [&] { counting = true; });
    Simulator::Stop(Seconds(0.5 + seconds));
    Simulator::Run();
    std::printf("{\"stations\": %u, \"cwmin\": %u, \"seed\": %u, \"simulated\": %.6f, \"model\": %.6f}\n", stations,
                cwMin, seed, sent ? double(failed) / sent : 0, Model(stations, cwMin));
    Simulator::Destroy();
    return 0;
}
