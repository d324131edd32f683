// SPDX-License-Identifier: Apache-2.0
// wifi-medium: an 802.11 (or wired) medium in real time between the TAP
// devices of network namespaces. See docs/lab.md.
#include "realtime.h"
#include "tap.h"
#include "txq.h"

#include "ns3/core-module.h"
#include "ns3/mobility-module.h"
#include "ns3/network-module.h"
#include "ns3/propagation-module.h"
#include "ns3/wifi-module.h"

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <getopt.h>
#include <iostream>
#include <memory>
#include <sched.h>
#include <set>
#include <stdexcept>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <unistd.h>

using namespace ns3;

namespace medium
{

namespace
{

// Ethernet frames between the taps: 14 bytes of header, 1500 of payload.
constexpr size_t ETHERNET_HEADER = 14;
constexpr size_t LARGEST_FRAME = 2048;
// "Inter-packet time < 100 us" of the papers.
const Time CLOSE = MicroSeconds(100);
// Most frames read from one tap before the next tap is read.
constexpr int READ_BATCH = 64;
// The papers' FIFO in the access point, packets.
constexpr uint32_t FIFO_PACKETS = 512;
// How long a frame may wait for its station: after ns-3's 0.5 s, frames held back for inactive stations are dropped.
const Time MAC_LIFETIME = Seconds(10);
// ath9k: frames in the hardware queue of a device that does not aggregate,
// and aggregates in that of one that does (ATH_NON_AGGR_MIN_QDEPTH, ATH_AGGR_MIN_QDEPTH).
constexpr uint32_t HARDWARE_FRAMES = 8;
constexpr uint32_t HARDWARE_AGGREGATES = 2;
constexpr double LONGEST_PPDU_SECONDS = 5.484e-3; // aPPDUMaxTime, IEEE 802.11-2016 table 19-25
constexpr uint32_t LONGEST_AMPDU_BYTES = 65535;
constexpr uint32_t MPDU_BYTES = 1538; // 1500 bytes, the headers of LLC and QoS data, and the delimiter
// Signals arrive at -62 dBm over one hop (20 dBm, path loss exponent 3), at -71 over two
// and at -76 over three: neighbours decode HT MCS7, and all nodes of up to 4 hops sense one another.
constexpr double NODE_DISTANCE_M = 15;
constexpr double TX_POWER_DBM = 20;
// The strangers use the chain's first channel. They are beside its middle, in range of all its nodes.
constexpr double STRANGER_DISTANCE_M = 8;
constexpr uint32_t STRANGER_PACKET_BYTES = 1500;
constexpr uint16_t STRANGER_PROTOCOL = 0x88b5; // EtherType for local experiments, IEEE 802

struct Options
{
    std::vector<std::string> taps;
    int hops = 0;
    int stations = 0;
    std::string wired; // rate
    std::string standard = "11n";
    int mcs = 7;
    int width = 20;
    int streams = 1;
    int channels = 1;
    std::string ap = "mac80211";
    double loss = 0;
    double interferenceMbps = 0;
    double delayMs = 0;
    int queue = 100;
    int seed = 1;
};

/// Towards the gateway (or access point), or from it.
enum Direction
{
    UP,
    DOWN,
};

struct Counters
{
    struct PerDirection
    {
        uint64_t ampdus = 0; // PPDUs with data: single MPDUs count as 1
        uint64_t mpdus = 0;
        uint64_t retried = 0; // MPDUs sent again
        uint64_t bytes = 0;   // of MPDUs
        uint64_t sent = 0;    // packets read from a tap
        uint64_t close = 0;   // of these: less than CLOSE after the previous one
        uint64_t delivered = 0;      // packets written to a tap
        uint64_t deliveredBytes = 0; // with the IP header
    };

    PerDirection direction[2];
    uint64_t lagSamples = 0;
    double lagSumMs = 0;
    double lagMaxMs = 0; // since the last report, not a sum
    double busySeconds = 0;
    uint64_t dropped = 0; // by any queue
    uint64_t marked = 0;  // CE by CoDel
};

/// A tap at a node of the simulation.
struct End
{
    std::unique_ptr<Tap> tap;
    Ptr<Node> node;
    Mac48Address address;
    Direction sends; // its packets go UP or DOWN
    Time lastSent{-1};
    std::function<void(Ptr<Packet>, Mac48Address to, uint16_t protocol)> send;
};

/// A WiFi or wired device, the queue above it, and the handler of received packets.
struct Port
{
    Ptr<NetDevice> device;
    std::unique_ptr<Mac80211Queue> queue; // none: plain FIFO in the MAC

    void Send(Ptr<Packet> packet, Mac48Address to, uint16_t protocol)
    {
        if (queue)
        {
            queue->Enqueue(Frame{packet, to, protocol, Time(0)});
        }
        else
        {
            device->Send(packet, to, protocol);
        }
    }
};

class Medium
{
  public:
    explicit Medium(Options options)
        : m_options(std::move(options))
    {
    }

    void Run();

  private:
    void BuildChain();
    void AddStrangers(Ptr<YansWifiChannel> channel);
    void Disturb(Ptr<NetDevice> from, Address to);
    void BuildAccessPoint();
    void BuildWired();

    YansWifiPhyHelper Phy(Ptr<YansWifiChannel> channel) const;
    Ptr<YansWifiChannel> Channel() const;
    WifiHelper Wifi() const;
    double PhyRate() const;
    Port& AddPort(Ptr<NetDevice> device);
    void AddWifiQueue(Port& port);
    void WatchMac(Port& port);
    void WatchPhy(Ptr<WifiNetDevice> device, std::function<Direction(Mac48Address receiver)> direction);
    End& AddEnd(Ptr<Node> node, Mac48Address address, Direction sends);
    void Place(const NodeContainer& nodes, double distance) const;

    void ReadTap(End& end);
    void ToTap(End& end, Ptr<const Packet> packet, uint16_t protocol, Mac48Address from, Mac48Address to);
    void CountSent(End& end);
    void ReadCommands();
    void SampleLag();
    void ReportEachSecond();
    void Report(const char* kind, Counters& since);
    void Ready();

    Options m_options;
    std::vector<std::unique_ptr<End>> m_ends;
    std::vector<std::unique_ptr<Port>> m_ports;
    Counters m_total;
    Counters m_second; // as of the last "second" line
    Counters m_mark;   // as of the last "mark" line
    double m_secondAt = 0;
    double m_markAt = 0;
    uint32_t m_associated = 0;
    Ptr<ExponentialRandomVariable> m_gap; // between packets of the strangers, s
};

double
Medium::PhyRate() const
{
    if (m_options.standard == "11g")
    {
        return 54e6;
    }
    // HT, 800 ns guard interval: 6.5 to 65 Mbit/s a stream at 20 MHz, 13.5 to 135 at 40.
    static const double perStream[] = {1, 2, 3, 4, 6, 8, 9, 10};
    return perStream[m_options.mcs] * (m_options.width == 40 ? 13.5e6 : 6.5e6) * m_options.streams;
}

WifiHelper
Medium::Wifi() const
{
    WifiHelper wifi;
    if (m_options.standard == "11g")
    {
        wifi.SetStandard(WIFI_STANDARD_80211g);
        wifi.SetRemoteStationManager("ns3::ConstantRateWifiManager",
                                     "DataMode", StringValue("ErpOfdmRate54Mbps"),
                                     "ControlMode", StringValue("ErpOfdmRate24Mbps"));
        return wifi;
    }
    wifi.SetStandard(WIFI_STANDARD_80211n);
    std::string mode = "HtMcs" + std::to_string(m_options.mcs + 8 * (m_options.streams - 1));
    wifi.SetRemoteStationManager("ns3::ConstantRateWifiManager",
                                 "DataMode", StringValue(mode),
                                 "ControlMode", StringValue("OfdmRate24Mbps"));
    return wifi;
}

Ptr<YansWifiChannel>
Medium::Channel() const
{
    YansWifiChannelHelper channel;
    channel.SetPropagationDelay("ns3::ConstantSpeedPropagationDelayModel");
    channel.AddPropagationLoss("ns3::LogDistancePropagationLossModel",
                               "Exponent", DoubleValue(3),
                               "ReferenceLoss", DoubleValue(46.67)); // 5.15 GHz at 1 m
    return channel.Create();
}

YansWifiPhyHelper
Medium::Phy(Ptr<YansWifiChannel> channel) const
{
    YansWifiPhyHelper phy;
    phy.SetChannel(channel);
    phy.Set("TxPowerStart", DoubleValue(TX_POWER_DBM));
    phy.Set("TxPowerEnd", DoubleValue(TX_POWER_DBM));
    phy.Set("ChannelSettings",
            StringValue(m_options.standard == "11g" ? "{0, 20, BAND_2_4GHZ, 0}"
                                                    : "{0, " + std::to_string(m_options.width) + ", BAND_5GHZ, 0}"));
    phy.Set("Antennas", UintegerValue(m_options.streams));
    phy.Set("MaxSupportedTxSpatialStreams", UintegerValue(m_options.streams));
    phy.Set("MaxSupportedRxSpatialStreams", UintegerValue(m_options.streams));
    if (m_options.loss > 0)
    {
        auto errors = CreateObject<RateErrorModel>();
        errors->SetUnit(RateErrorModel::ERROR_UNIT_PACKET);
        errors->SetRate(m_options.loss);
        phy.Set("PostReceptionErrorModel", PointerValue(errors));
    }
    return phy;
}

void
Medium::Place(const NodeContainer& nodes, double distance) const
{
    auto positions = CreateObject<ListPositionAllocator>();
    for (uint32_t i = 0; i < nodes.GetN(); i++)
    {
        positions->Add(Vector(i * distance, 0, 0));
    }
    MobilityHelper mobility;
    mobility.SetPositionAllocator(positions);
    mobility.Install(nodes);
}

Port&
Medium::AddPort(Ptr<NetDevice> device)
{
    m_ports.push_back(std::make_unique<Port>());
    m_ports.back()->device = device;
    return *m_ports.back();
}

void
Medium::AddWifiQueue(Port& port)
{
    auto wifi = DynamicCast<WifiNetDevice>(port.device);
    bool aggregates = m_options.standard == "11n";
    auto macQueue = wifi->GetMac()->GetTxopQueue(aggregates ? AC_BE : AC_BE_NQOS);
    macQueue->SetMaxDelay(MAC_LIFETIME);
    macQueue->SetMaxSize(QueueSize(QueueSizeUnit::PACKETS, FIFO_PACKETS));
    macQueue->TraceConnectWithoutContext("DropBeforeEnqueue", Callback<void, Ptr<const WifiMpdu>>([this](Ptr<const WifiMpdu>) { m_total.dropped++; }));
    if (m_options.ap == "fifo")
    {
        return;
    }
    Mac80211Queue::Hardware hardware;
    hardware.bitsPerSecond = PhyRate();
    hardware.aggregate = 1;
    hardware.depth = HARDWARE_FRAMES;
    if (aggregates)
    {
        double bytes = std::min<double>(LONGEST_AMPDU_BYTES, LONGEST_PPDU_SECONDS * PhyRate() / 8);
        hardware.aggregate = std::max<uint32_t>(1, bytes / MPDU_BYTES);
        hardware.depth = HARDWARE_AGGREGATES * hardware.aggregate;
    }
    hardware.queued = [macQueue] { return macQueue->QueueBase::GetNPackets(); };
    hardware.send = [wifi](const Frame& f) { wifi->Send(f.packet, f.to, f.protocol); };
    port.queue = std::make_unique<Mac80211Queue>(hardware);
    auto* queue = port.queue.get();
    // ScheduleNow: after the MAC has finished with the frame that it has taken out.
    auto refill = Callback<void, Ptr<const WifiMpdu>>(
        [queue](Ptr<const WifiMpdu>) { Simulator::ScheduleNow(&Mac80211Queue::Schedule, queue); });
    macQueue->TraceConnectWithoutContext("Dequeue", refill);
    macQueue->TraceConnectWithoutContext("DropAfterDequeue", refill);
}

void
Medium::WatchPhy(Ptr<WifiNetDevice> device, std::function<Direction(Mac48Address)> direction)
{
    auto onTransmit = [this, direction](WifiConstPsduMap psdus, WifiTxVector, double) {
        for (const auto& [id, psdu] : psdus)
        {
            const WifiMacHeader& header = psdu->GetHeader(0);
            if (!header.IsData() || !header.HasData() || header.GetAddr1().IsGroup())
            {
                continue;
            }
            auto& counters = m_total.direction[direction(header.GetAddr1())];
            counters.ampdus++;
            for (size_t i = 0; i < psdu->GetNMpdus(); i++)
            {
                counters.mpdus++;
                counters.bytes += psdu->GetPayload(i)->GetSize();
                counters.retried += psdu->GetHeader(i).IsRetry();
            }
        }
    };
    device->GetPhy()->TraceConnectWithoutContext(
        "PhyTxPsduBegin", Callback<void, WifiConstPsduMap, WifiTxVector, double>(onTransmit));
}

End&
Medium::AddEnd(Ptr<Node> node, Mac48Address address, Direction sends)
{
    m_ends.push_back(std::make_unique<End>());
    End& end = *m_ends.back();
    uint8_t mac[6];
    address.CopyTo(mac);
    end.tap = std::make_unique<Tap>(m_options.taps.at(m_ends.size() - 1), mac);
    end.node = node;
    end.address = address;
    end.sends = sends;
    RealtimeSimulator::Get().Watch(end.tap->Fd(), [this, &end] { ReadTap(end); });
    return end;
}

void
Medium::ReadTap(End& end)
{
    uint8_t frame[LARGEST_FRAME];
    for (int i = 0; i < READ_BATCH; i++)
    {
        size_t n = end.tap->Read(frame, sizeof(frame));
        if (n <= ETHERNET_HEADER)
        {
            return;
        }
        Mac48Address to;
        to.CopyFrom(frame);
        uint16_t protocol = frame[12] << 8 | frame[13];
        auto packet = Create<Packet>(frame + ETHERNET_HEADER, n - ETHERNET_HEADER);
        RealtimeSimulator::Get().ScheduleArrival(
            end.node->GetId(), MakeEvent([this, &end, packet, to, protocol] {
                CountSent(end);
                end.send(packet, to, protocol);
            }));
    }
}

void
Medium::CountSent(End& end)
{
    auto& counters = m_total.direction[end.sends];
    counters.sent++;
    counters.close += !end.lastSent.IsNegative() && Simulator::Now() - end.lastSent < CLOSE;
    end.lastSent = Simulator::Now();
}

void
Medium::ToTap(End& end, Ptr<const Packet> packet, uint16_t protocol, Mac48Address from, Mac48Address to)
{
    uint8_t frame[LARGEST_FRAME];
    uint32_t size = packet->GetSize();
    if (ETHERNET_HEADER + size > sizeof(frame))
    {
        return;
    }
    to.CopyTo(frame);
    from.CopyTo(frame + 6);
    frame[12] = protocol >> 8;
    frame[13] = protocol & 0xff;
    packet->CopyData(frame + ETHERNET_HEADER, size);
    end.tap->Write(frame, ETHERNET_HEADER + size);
    auto& counters = m_total.direction[end.sends == UP ? DOWN : UP];
    counters.delivered++;
    counters.deliveredBytes += size;
}

/// Ad hoc nodes in a line. Every node forwards packets to its other neighbour, so
/// the two ends look like the ends of one Ethernet.
void
Medium::BuildChain()
{
    uint32_t hops = m_options.hops;
    NodeContainer nodes;
    nodes.Create(hops + 1);
    Place(nodes, NODE_DISTANCE_M);

    std::vector<Ptr<YansWifiChannel>> channels;
    for (int i = 0; i < m_options.channels; i++)
    {
        channels.push_back(Channel());
    }
    WifiMacHelper mac;
    mac.SetType("ns3::AdhocWifiMac");
    WifiHelper wifi = Wifi();

    // Per node: the port to the neighbour on the left and on the right (the same one on one channel).
    std::vector<Port*> left(hops + 1, nullptr);
    std::vector<Port*> right(hops + 1, nullptr);
    auto install = [&](uint32_t node, uint32_t hop) -> Port& {
        NetDeviceContainer c = wifi.Install(Phy(channels[hop % channels.size()]), mac, nodes.Get(node));
        Port& port = AddPort(c.Get(0));
        AddWifiQueue(port);
        return port;
    };
    for (uint32_t i = 0; i <= hops; i++)
    {
        if (i > 0)
        {
            left[i] = &install(i, i - 1);
        }
        if (i < hops)
        {
            right[i] = i > 0 && channels.size() == 1 ? left[i] : &install(i, i);
        }
    }
    auto address = [](Port* port) { return Mac48Address::ConvertFrom(port->device->GetAddress()); };

    End& client = AddEnd(nodes.Get(0), address(right[0]), UP);
    End& gateway = AddEnd(nodes.Get(hops), address(left[hops]), DOWN);
    client.send = [port = right[0], next = address(left[1])](Ptr<Packet> p, Mac48Address, uint16_t protocol) {
        port->Send(p, next, protocol);
    };
    // The wire behind the gateway delays packets, and has no other limit.
    Time delay = MicroSeconds(m_options.delayMs * 1000);
    gateway.send = [delay, port = left[hops], next = address(right[hops - 1])](Ptr<Packet> p, Mac48Address, uint16_t protocol) {
        Simulator::Schedule(delay, &Port::Send, port, p, next, protocol);
    };

    for (uint32_t i = 0; i <= hops; i++)
    {
        Mac48Address fromLeft = i > 0 ? address(right[i - 1]) : Mac48Address();
        auto receive = [this, i, hops, delay, fromLeft, &client, &gateway, l = left[i], r = right[i],
                        nextRight = i < hops ? address(left[i + 1]) : Mac48Address(),
                        nextLeft = i > 0 ? address(right[i - 1]) : Mac48Address()](
                           Ptr<NetDevice>, Ptr<const Packet> packet, uint16_t protocol, const Address& from) {
            bool up = i > 0 && Mac48Address::ConvertFrom(from) == fromLeft;
            if (up && i == hops)
            {
                Simulator::Schedule(delay, &Medium::ToTap, this, std::ref(gateway), packet, protocol, client.address,
                                    gateway.address);
            }
            else if (up)
            {
                r->Send(packet->Copy(), nextRight, protocol);
            }
            else if (i == 0)
            {
                ToTap(client, packet, protocol, gateway.address, client.address);
            }
            else
            {
                l->Send(packet->Copy(), nextLeft, protocol);
            }
            return true;
        };
        std::set<Port*> ports{left[i], right[i]};
        ports.erase(nullptr);
        for (Port* port : ports)
        {
            port->device->SetReceiveCallback(
                Callback<bool, Ptr<NetDevice>, Ptr<const Packet>, uint16_t, const Address&>(receive));
            WatchPhy(DynamicCast<WifiNetDevice>(port->device),
                     [up = i < hops ? address(left[i + 1]) : Mac48Address()](Mac48Address receiver) {
                         return receiver == up ? UP : DOWN;
                     });
        }
    }
    if (m_options.interferenceMbps > 0)
    {
        AddStrangers(channels[0]);
    }
    Simulator::Schedule(MilliSeconds(1), &Medium::Ready, this);
}

/// Two nodes of another network: one sends packets to the other, at random times.
void
Medium::AddStrangers(Ptr<YansWifiChannel> channel)
{
    NodeContainer nodes;
    nodes.Create(2);
    double middle = m_options.hops * NODE_DISTANCE_M / 2;
    auto positions = CreateObject<ListPositionAllocator>();
    positions->Add(Vector(middle, STRANGER_DISTANCE_M, 0));
    positions->Add(Vector(middle, 2 * STRANGER_DISTANCE_M, 0));
    MobilityHelper mobility;
    mobility.SetPositionAllocator(positions);
    mobility.Install(nodes);
    WifiMacHelper mac;
    mac.SetType("ns3::AdhocWifiMac");
    NetDeviceContainer devices = Wifi().Install(Phy(channel), mac, nodes);
    m_gap = CreateObject<ExponentialRandomVariable>();
    m_gap->SetAttribute("Mean", DoubleValue(STRANGER_PACKET_BYTES * 8 / (m_options.interferenceMbps * 1e6)));
    Disturb(devices.Get(0), devices.Get(1)->GetAddress());
}

void
Medium::Disturb(Ptr<NetDevice> from, Address to)
{
    from->Send(Create<Packet>(STRANGER_PACKET_BYTES), to, STRANGER_PROTOCOL);
    Simulator::Schedule(Seconds(m_gap->GetValue()), &Medium::Disturb, this, from, to);
}

/// Taps: the access point's, then one per station.
void
Medium::BuildAccessPoint()
{
    NodeContainer nodes;
    nodes.Create(1 + m_options.stations);
    Place(nodes, NODE_DISTANCE_M / m_options.stations); // all within one hop's distance

    auto channel = Channel();
    WifiHelper wifi = Wifi();
    WifiMacHelper mac;
    Ssid ssid("lab");
    mac.SetType("ns3::ApWifiMac", "Ssid", SsidValue(ssid), "EnableBeaconJitter", BooleanValue(true));
    NetDeviceContainer devices = wifi.Install(Phy(channel), mac, nodes.Get(0));
    mac.SetType("ns3::StaWifiMac", "Ssid", SsidValue(ssid), "MaxMissedBeacons", UintegerValue(1000));
    for (int i = 1; i <= m_options.stations; i++)
    {
        NetDeviceContainer c = wifi.Install(Phy(channel), mac, nodes.Get(i));
        devices.Add(c);
        auto sta = DynamicCast<StaWifiMac>(DynamicCast<WifiNetDevice>(c.Get(0))->GetMac());
        sta->TraceConnectWithoutContext("Assoc", Callback<void, Mac48Address>([this](Mac48Address) {
                                            if (++m_associated == uint32_t(m_options.stations))
                                            {
                                                Ready();
                                            }
                                        }));
    }
    for (uint32_t i = 0; i < devices.GetN(); i++)
    {
        auto device = DynamicCast<WifiNetDevice>(devices.Get(i));
        Port& port = AddPort(device);
        AddWifiQueue(port);
        End& end = AddEnd(nodes.Get(i), Mac48Address::ConvertFrom(device->GetAddress()), i == 0 ? DOWN : UP);
        end.send = [&port](Ptr<Packet> p, Mac48Address to, uint16_t protocol) { port.Send(p, to, protocol); };
        auto receive = [this, &end](Ptr<NetDevice>, Ptr<const Packet> packet, uint16_t protocol,
                                    const Address& from, const Address& to, NetDevice::PacketType type) {
            if (type != NetDevice::PACKET_OTHERHOST)
            {
                ToTap(end, packet, protocol, Mac48Address::ConvertFrom(from), Mac48Address::ConvertFrom(to));
            }
            return true;
        };
        device->SetPromiscReceiveCallback(
            Callback<bool, Ptr<NetDevice>, Ptr<const Packet>, uint16_t, const Address&, const Address&,
                     NetDevice::PacketType>(receive));
        WatchPhy(device, [i](Mac48Address) { return i == 0 ? DOWN : UP; });
    }
}

/// A full-duplex link: each way has a drop-tail queue, a rate, random loss and a delay.
void
Medium::BuildWired()
{
    NodeContainer nodes;
    nodes.Create(2);
    SimpleNetDeviceHelper link;
    link.SetQueue("ns3::DropTailQueue<Packet>",
                  "MaxSize", QueueSizeValue(QueueSize(QueueSizeUnit::PACKETS, m_options.queue)));
    link.SetDeviceAttribute("DataRate", StringValue(m_options.wired));
    link.SetChannelAttribute("Delay", TimeValue(MicroSeconds(m_options.delayMs * 1000)));
    link.SetNetDevicePointToPointMode(true);
    NetDeviceContainer devices = link.Install(nodes);
    for (uint32_t i = 0; i < 2; i++)
    {
        auto device = DynamicCast<SimpleNetDevice>(devices.Get(i));
        if (m_options.loss > 0)
        {
            auto errors = CreateObject<RateErrorModel>();
            errors->SetUnit(RateErrorModel::ERROR_UNIT_PACKET);
            errors->SetRate(m_options.loss);
            device->SetReceiveErrorModel(errors);
        }
        Port& port = AddPort(device);
        device->GetQueue()->TraceConnectWithoutContext(
            "Drop", Callback<void, Ptr<const Packet>>([this](Ptr<const Packet>) { m_total.dropped++; }));
        End& end = AddEnd(nodes.Get(i), Mac48Address::ConvertFrom(device->GetAddress()), i == 0 ? UP : DOWN);
        Mac48Address other = Mac48Address::ConvertFrom(devices.Get(1 - i)->GetAddress());
        end.send = [&port, other](Ptr<Packet> p, Mac48Address, uint16_t protocol) {
            port.Send(p, other, protocol);
        };
        auto receive = [this, &end, other](Ptr<NetDevice>, Ptr<const Packet> packet, uint16_t protocol, const Address&) {
            ToTap(end, packet, protocol, other, end.address);
            return true;
        };
        device->SetReceiveCallback(
            Callback<bool, Ptr<NetDevice>, Ptr<const Packet>, uint16_t, const Address&>(receive));
    }
    Simulator::Schedule(MilliSeconds(1), &Medium::Ready, this);
}

void
Medium::Ready()
{
    std::cout << "{\"kind\":\"ready\",\"t\":" << Simulator::Now().GetSeconds() << "}" << std::endl;
}

void
Medium::SampleLag()
{
    double lag = RealtimeSimulator::Get().Lag() / 1e6;
    m_total.lagSamples++;
    m_total.lagSumMs += std::max(lag, 0.0);
    m_second.lagMaxMs = std::max(m_second.lagMaxMs, lag);
    m_mark.lagMaxMs = std::max(m_mark.lagMaxMs, lag);
    Simulator::Schedule(MilliSeconds(1), &Medium::SampleLag, this);
}

void
Medium::Report(const char* kind, Counters& since)
{
    m_total.marked = 0;
    uint64_t queueDrops = 0;
    for (const auto& port : m_ports)
    {
        if (port->queue)
        {
            queueDrops += port->queue->overlimit + port->queue->codel;
            m_total.marked += port->queue->marked;
        }
    }
    Counters now = m_total;
    now.dropped += queueDrops;
    double t = Simulator::Now().GetSeconds();
    double& at = &since == &m_second ? m_secondAt : m_markAt;
    uint64_t samples = now.lagSamples - since.lagSamples;

    std::cout << "{\"kind\":\"" << kind << "\",\"t\":" << t << ",\"seconds\":" << t - at << ",\"lag_ms\":"
              << (samples ? (now.lagSumMs - since.lagSumMs) / samples : 0)
              << ",\"lag_max_ms\":" << since.lagMaxMs;
    if (m_options.wired.empty())
    {
        std::cout << ",\"busy\":" << (t > at ? (now.busySeconds - since.busySeconds) / (t - at) : 0);
    }
    for (Direction d : {UP, DOWN})
    {
        auto& a = now.direction[d];
        auto& b = since.direction[d];
        uint64_t ampdus = a.ampdus - b.ampdus;
        uint64_t mpdus = a.mpdus - b.mpdus;
        std::cout << ",\"" << (d == UP ? "up" : "down") 
                  << "\":{\"sent\":" << a.sent - b.sent << ",\"sent_close\":" << a.close - b.close
                  << ",\"delivered\":" << a.delivered - b.delivered
                  << ",\"delivered_bytes\":" << a.deliveredBytes - b.deliveredBytes;
        if (m_options.wired.empty())
        {
            std::cout << ",\"mpdus\":" << mpdus << ",\"mpdu_bytes\":" << a.bytes - b.bytes
                      << ",\"ampdus\":" << ampdus << ",\"mpdus_per_ampdu\":" << (ampdus ? double(mpdus) / ampdus : 0)
                      << ",\"retried\":" << a.retried - b.retried;
        }
        std::cout << "}";
    }
    std::cout << ",\"dropped\":" << now.dropped - since.dropped << ",\"marked\":" << now.marked - since.marked << "}"
              << std::endl;
    since = now;
    since.lagMaxMs = 0;
    at = t;
}

void
Medium::ReportEachSecond()
{
    Report("second", m_second);
    Simulator::Schedule(Seconds(1), &Medium::ReportEachSecond, this);
}

/// Answers every line on standard input with a "mark" line, and stops at its end.
void
Medium::ReadCommands()
{
    char buffer[256];
    ssize_t n = read(STDIN_FILENO, buffer, sizeof(buffer));
    if (n <= 0)
    {
        Simulator::Stop();
        return;
    }
    for (ssize_t i = 0; i < n; i++)
    {
        if (buffer[i] == '\n')
        {
            RealtimeSimulator::Get().ScheduleArrival(0, MakeEvent([this] { Report("mark", m_mark); }));
        }
    }
}

void
Medium::Run()
{
    if (!m_options.wired.empty())
    {
        BuildWired();
    }
    else if (m_options.stations > 0)
    {
        BuildAccessPoint();
    }
    else
    {
        BuildChain();
    }
    if (m_options.wired.empty())
    {
        // The channel is busy when the first node (client end or access point) hears it so.
        DynamicCast<WifiNetDevice>(m_ports[0]->device)
            ->GetPhy()
            ->GetState()
            ->TraceConnectWithoutContext(
                "State", Callback<void, Time, Time, WifiPhyState>([this](Time, Time duration, WifiPhyState state) {
                    if (state == WifiPhyState::TX || state == WifiPhyState::RX || state == WifiPhyState::CCA_BUSY)
                    {
                        m_total.busySeconds += duration.GetSeconds();
                    }
                }));
    }
    Simulator::Schedule(MilliSeconds(1), &Medium::SampleLag, this);
    Simulator::Schedule(Seconds(1), &Medium::ReportEachSecond, this);

    auto& loop = RealtimeSimulator::Get();
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGTERM);
    sigprocmask(SIG_BLOCK, &signals, nullptr);
    loop.Watch(signalfd(-1, &signals, SFD_CLOEXEC), [] { Simulator::Stop(); });
    loop.Watch(STDIN_FILENO, [this] { ReadCommands(); });
    Simulator::Run();
    m_ends.clear();
    Simulator::Destroy();
}

/// Best effort: an emulator that lags reports the lag, and the caller discards the run.
void
RaisePriority()
{
    sched_param param{};
    param.sched_priority = 1;
    if (sched_setscheduler(0, SCHED_FIFO, &param) != 0 && setpriority(PRIO_PROCESS, 0, -20) != 0)
    {
        std::cerr << "wifi-medium: runs at normal priority: " << std::strerror(errno) << std::endl;
    }
    prctl(PR_SET_TIMERSLACK, 1000); // ns
    mlockall(MCL_CURRENT | MCL_FUTURE);
}

constexpr char USAGE[] = R"(usage: wifi-medium (--hops N | --stations N | --wired RATE) --tap NETNS/NAME... [option...]
An 802.11 or wired medium in real time between TAP devices, which it creates.

  --hops N           ad hoc chain of 1 to 5 hops; taps: client end, gateway end
  --stations N       access point with 1 to 30 stations; taps: access point, stations
  --wired RATE       link of this rate of IP bytes (e.g. 50Mbps); taps: client end, gateway end
  --tap NETNS/NAME   where to create a tap; NAME alone: in this namespace
WiFi:
  --standard S       11n (5 GHz) or 11g (54 Mbit/s)                      [11n]
  --mcs N            HT modulation and coding scheme, 0 to 7             [7]
  --streams N        spatial streams, 1 to 4                             [1]
  --width MHZ        20 or 40                                            [20]
  --channels N       1, or 2: hops of the chain alternate between two    [1]
  --ap QUEUE         mac80211 (fq_codel per station, airtime fairness)
                     or fifo (512 packets)                               [mac80211]
  --interference MBPS  what a stranger's network offers on the channel
                     (the first of two) of a chain, at random times      [0]
  --delay MS         of a chain: one way, of a wire behind the gateway   [0]
Wired:
  --delay MS         one way                                             [0]
  --queue PACKETS    drop-tail buffer                                    [100]
All:
  --loss P           probability that an MPDU (packet) is lost           [0]
  --seed N                                                               [1]
  --help

Prints JSON lines: "ready", each second a "second", and a "mark" for every line
on standard input, with what happened since the last one. Ends at the end of
standard input.
)";

[[noreturn]] void
Usage(const std::string& message)
{
    std::cerr << "wifi-medium: " << message << std::endl;
    std::exit(2);
}

double
Number(const char* flag, const char* text, double low, double high)
{
    char* end;
    double value = std::strtod(text, &end);
    if (end == text || *end != '\0' || !(value >= low && value <= high))
    {
        std::ostringstream message;
        message << "--" << flag << " " << text << ": not a number from " << low << " to " << high;
        Usage(message.str());
    }
    return value;
}

int
Integer(const char* flag, const char* text, int low, int high)
{
    double value = Number(flag, text, low, high);
    if (value != int(value))
    {
        Usage(std::string("--") + flag + " " + text + ": not a whole number");
    }
    return int(value);
}

std::string
OneOf(const char* flag, const std::string& text, const std::set<std::string>& values)
{
    if (values.count(text) == 0)
    {
        std::string list;
        for (const auto& v : values)
        {
            list += (list.empty() ? "" : ", ") + v;
        }
        Usage(std::string("--") + flag + " " + text + ": not one of " + list);
    }
    return text;
}

Options
Parse(int argc, char** argv)
{
    Options o;
    const option flags[] = {
        {"hops", 1, nullptr, 'h'},     {"stations", 1, nullptr, 's'}, {"wired", 1, nullptr, 'w'},
        {"tap", 1, nullptr, 't'},      {"standard", 1, nullptr, 'S'}, {"mcs", 1, nullptr, 'm'},
        {"streams", 1, nullptr, 'n'},  {"width", 1, nullptr, 'W'},    {"channels", 1, nullptr, 'c'},
        {"ap", 1, nullptr, 'a'},       {"delay", 1, nullptr, 'd'},    {"queue", 1, nullptr, 'q'},
        {"loss", 1, nullptr, 'l'},     {"seed", 1, nullptr, 'r'},     {"interference", 1, nullptr, 'i'},
        {"help", 0, nullptr, '?' + 1}, {nullptr, 0, nullptr, 0},
    };
    int index = 0;
    int c;
    opterr = 0;
    while ((c = getopt_long(argc, argv, "", flags, &index)) != -1)
    {
        const char* flag = c == '?' ? "" : flags[index].name;
        switch (c)
        {
        case 'h':
            o.hops = Integer(flag, optarg, 1, 5);
            break;
        case 's':
            o.stations = Integer(flag, optarg, 1, 30);
            break;
        case 'w': {
            DataRate rate;
            std::istringstream text(optarg);
            text >> rate;
            if (text.fail() || rate.GetBitRate() == 0)
            {
                Usage(std::string("--wired ") + optarg + ": not a rate like 50Mbps");
            }
            o.wired = optarg;
            break;
        }
        case 't':
            o.taps.push_back(optarg);
            break;
        case 'S':
            o.standard = OneOf(flag, optarg, {"11n", "11g"});
            break;
        case 'm':
            o.mcs = Integer(flag, optarg, 0, 7);
            break;
        case 'n':
            o.streams = Integer(flag, optarg, 1, 4);
            break;
        case 'W':
            o.width = Integer(flag, OneOf(flag, optarg, {"20", "40"}).c_str(), 20, 40);
            break;
        case 'c':
            o.channels = Integer(flag, optarg, 1, 2);
            break;
        case 'a':
            o.ap = OneOf(flag, optarg, {"mac80211", "fifo"});
            break;
        case 'd':
            o.delayMs = Number(flag, optarg, 0, 10'000);
            break;
        case 'q':
            o.queue = Integer(flag, optarg, 1, 100'000);
            break;
        case 'i':
            o.interferenceMbps = Number(flag, optarg, 0, 1000);
            break;
        case 'l':
            o.loss = Number(flag, optarg, 0, 1);
            break;
        case 'r':
            o.seed = Integer(flag, optarg, 1, 1'000'000);
            break;
        case '?' + 1:
            std::cout << USAGE;
            std::exit(0);
        default:
            Usage(std::string(argv[optind - 1]) + ": unknown, or without its value (see --help)");
        }
    }
    if (optind < argc)
    {
        Usage(std::string(argv[optind]) + ": not expected (see --help)");
    }
    if ((o.hops > 0) + (o.stations > 0) + !o.wired.empty() != 1)
    {
        Usage("one of --hops, --stations, --wired is needed (see --help)");
    }
    if (o.hops == 0 && o.interferenceMbps > 0)
    {
        Usage("--interference: only with --hops");
    }
    if (o.stations > 0 && o.delayMs > 0)
    {
        Usage("--delay: not with --stations");
    }
    size_t ends = o.stations > 0 ? 1 + o.stations : 2;
    if (o.taps.size() != ends)
    {
        Usage("--tap is needed " + std::to_string(ends) + " times, not " + std::to_string(o.taps.size()));
    }
    return o;
}

} // namespace

} // namespace medium

int
main(int argc, char** argv)
{
    medium::Options options = medium::Parse(argc, argv);
    medium::RaisePriority();
    GlobalValue::Bind("SimulatorImplementationType", StringValue("medium::RealtimeSimulator"));
    RngSeedManager::SetSeed(options.seed);
    // Linux's ADDBA_RESP_INTERVAL, as in lab/ns3/dense.cc. After ns-3's 1 ms, an answer on a crowded channel comes late,
    // and the station may be cut off.
    Config::SetDefault("ns3::QosTxop::AddBaResponseTimeout", TimeValue(Seconds(1)));
    try
    {
        medium::Medium(std::move(options)).Run();
    }
    catch (const std::runtime_error& e)
    {
        std::cerr << "wifi-medium: " << e.what() << std::endl;
        return 1;
    }
    return 0;
}
