// SPDX-License-Identifier: Apache-2.0
// Many stations of one access point each download a file while they upload, as in
// table 2 of the WiFiRR paper, with the AP of that time or of today, and with one
// of several schedulers. Prints one row of JSON.
#include "ap-queue.h"
#include "medium.h"
#include "scheduler.h"
#include "traffic.h"

#include "ns3/applications-module.h"
#include "ns3/core-module.h"
#include "ns3/internet-module.h"
#include "ns3/network-module.h"
#include "ns3/point-to-point-module.h"
#include "ns3/traffic-control-module.h"
#include "ns3/wifi-module.h"

#include <algorithm>
#include <cstdio>
#include <iostream>
#include <numeric>
#include <set>

using namespace ns3;
using namespace dense;

namespace
{

constexpr double GREETINGS = 3;   // s: all are associated; block ack agreements follow
constexpr double WARM_UP = 8;     // s: the load begins
constexpr uint16_t DOWNLOAD = 80; // first port; clients that share an address have their own
constexpr uint16_t UPLOAD = 10000;
constexpr uint16_t INTERACTIVE = 20000;
constexpr unsigned NEIGHBOURS = 2;
constexpr unsigned INTERACTIVE_CLIENTS = 5;
const std::vector<double> RTT_MIXTURE{2, 20, 50, 100}; // ms; --rtt-ms=0: clients have these in turn
constexpr unsigned SIBLING_PART = 3;                   // one station in three is in another BSS of the radio, or behind its mesh neighbour
// One client in three is so near that its frames arrive at -50 dBm, one hears the access point at -78 dBm, one at -87: MCS 7, 4 and 1.
const std::vector<double> LOSSES{0, 28, 37};           // dB
const std::vector<double> RATES{65, 39, 13};           // Mbit/s
constexpr double WIRE_RATE = 1e9;                      // bit/s
constexpr uint32_t G711_BYTES = 172;
constexpr double G711_SECONDS = 0.02;
constexpr uint32_t DNS_BYTES = 80;

struct Arguments
{
    std::string ap = "mac80211";
    std::string traffic = "cbr";
    double uploadKbit = 200;
    bool uploadGoesOn = true;
    unsigned stations = 30;
    std::string phy = "11g";
    std::string rateControl = "minstrel";
    double fileMb = 5;
    unsigned seed = 1;
    double limit = 600; // s
    std::string interactive = "none";
    bool interactiveAlone = false;
    double neighbourShare = 0;
    std::string driver = "ath9k";
    double rttMs = 2;
    std::string sibling = "none";
    unsigned siblings = 0; // clients of another BSS, or of the next node in the mesh: the last ones of the stations
    std::string distance = "near";
    unsigned streams = 1;
    StationScheduler::Options scheduler;
};

/// One client: its ends, its traffic and its measurements.
struct Client
{
    Ptr<Node> node;
    Ptr<Node> server;
    Ipv4Address address, serverAddress;
    Time start, completion; // completion 0: not yet
    uint64_t received = 0;
    uint64_t uploadedBefore = 0;
    Time uploadEnd;
    uint64_t uploaded = 0;
    Ptr<UploadServer> uploadServer;
    Ptr<Upload> upload;
    Ptr<Exchange> exchange;
    Ptr<Lookups> lookups;
    std::vector<double> delays; // s, of an interactive stream
};

[[noreturn]] void
Refuse(const std::string& what)
{
    std::cerr << "dense: " << what << "\n";
    std::exit(2);
}

void
OneOf(const std::string& option, const std::string& value, const std::vector<std::string>& values)
{
    if (std::find(values.begin(), values.end(), value) != values.end())
    {
        return;
    }
    std::string text = "--" + option + " \"" + value + "\": not one of";
    for (auto& v : values)
    {
        text += " " + v;
    }
    Refuse(text);
}

double
Quantile(std::vector<double> values, double q)
{
    if (values.empty())
    {
        return 0;
    }
    std::sort(values.begin(), values.end());
    return values[std::min<size_t>(values.size() - 1, q * values.size())];
}

/// Tells device the neighbour's address: ARP under load is not measured here.
void
Introduce(Ptr<NetDevice> device, Ptr<NetDevice> neighbour, Ipv4Address address)
{
    Ptr<Ipv4L3Protocol> ip = device->GetNode()->GetObject<Ipv4L3Protocol>();
    Ptr<ArpCache> cache = ip->GetInterface(ip->GetInterfaceForDevice(device))->GetArpCache();
    ArpCache::Entry* entry = cache->Add(address);
    entry->SetMacAddress(neighbour->GetAddress());
    entry->MarkPermanent();
}

void
RouteByDefault(Ptr<Node> node, Ipv4Address gateway)
{
    Ipv4StaticRoutingHelper().GetStaticRouting(node->GetObject<Ipv4>())->SetDefaultRoute(gateway, 1);
}

class Scene
{
  public:
    explicit Scene(const Arguments& arguments);
    void Run();
    void Print() const;

  private:
    unsigned Station(unsigned client) const;
    void MakeWifi();
    void MakeNetwork();
    void MakeTraffic(unsigned i);
    void MakeInteractive(unsigned i, Time start);
    void MakeNeighbours();
    void Add(Ptr<WifiNetDevice> device, double lossDb);
    void Complete(unsigned i);
    void EndUpload(unsigned i);
    void WatchDownload(unsigned i, Ptr<Application> app);
    void WatchUpload(unsigned i);

    const Arguments m_args;
    const unsigned m_all; // clients: the stations that download, then those with only an interactive flow
    NodeContainer m_servers, m_apNode, m_stations; // a server for each round-trip time
    Ptr<WifiNetDevice> m_ap;
    NetDeviceContainer m_devices; // one for each client; clients of the next node share the last one, the mesh neighbour
    std::set<unsigned> m_associated;
    Ptr<ApQueue> m_queue;
    Medium m_medium;
    std::unique_ptr<StationScheduler> m_scheduler;
    std::vector<Client> m_clients;
    Ipv4Address m_apAddress;
    unsigned m_left = 0;
    uint64_t m_timeouts = 0;
    std::vector<double> m_downloadRtt, m_uploadRtt, m_waitingRtt; // s
    Time m_busyBefore, m_collidedBefore;
    Time m_end;
};

Scene::Scene(const Arguments& arguments)
    : m_args(arguments),
      m_all(arguments.stations + (arguments.interactiveAlone ? INTERACTIVE_CLIENTS : 0)),
      m_clients(m_all),
      m_left(arguments.stations)
{
    GlobalValue::Bind("SchedulerType", StringValue("ns3::PriorityQueueScheduler")); // the same order of events, 8 % faster
    // Linux's values where ns-3's differ.
    Config::SetDefault("ns3::TcpL4Protocol::SocketType", TypeIdValue(TcpCubic::GetTypeId()));
    // RTO = srtt + max(200 ms, 4 rttvar)
    Config::SetDefault("ns3::TcpSocketBase::MinRto", TimeValue(MilliSeconds(200)));
    Config::SetDefault("ns3::TcpSocketBase::ClockGranularity", TimeValue(MilliSeconds(200)));
    Config::SetDefault("ns3::TcpSocket::InitialCwnd", UintegerValue(10));
    Config::SetDefault("ns3::TcpSocket::SegmentSize", UintegerValue(1448));
    Config::SetDefault("ns3::TcpSocket::SndBufSize", UintegerValue(1 << 20));
    Config::SetDefault("ns3::TcpSocket::RcvBufSize", UintegerValue(1 << 20));
    Config::SetDefault("ns3::TcpSocket::DataRetries", UintegerValue(15));
    // Longer than a client waits for its turn.
    Config::SetDefault("ns3::WifiMacQueue::MaxDelay", TimeValue(Seconds(10)));
    Config::SetDefault("ns3::WifiMacQueue::MaxSize", StringValue("4096p"));
    // Linux's ADDBA_RESP_INTERVAL. ns-3 gives up after 1 ms, but a station's answer takes longer on a crowded channel.
    // When it arrives late, the two ends disagree on sequence numbers, and the station is cut off in both
    // directions from then on.
    Config::SetDefault("ns3::QosTxop::AddBaResponseTimeout", TimeValue(Seconds(1)));
    RngSeedManager::SetSeed(20161);
    RngSeedManager::SetRun(m_args.seed);

    m_servers.Create(m_args.rttMs > 0 ? 1 : RTT_MIXTURE.size());
    m_apNode.Create(1);
    m_stations.Create(m_all - (m_args.sibling == "mesh" ? m_args.siblings - 1 : 0));
    MakeWifi();
    MakeNetwork();
    if (m_args.neighbourShare > 0)
    {
        MakeNeighbours();
    }
    for (unsigned i = 0; i < m_all; i++)
    {
        MakeTraffic(i);
    }
    Simulator::Schedule(Seconds(WARM_UP), [this] {
        if (m_associated.size() < m_devices.GetN())
        {
            Refuse("only " + std::to_string(m_associated.size()) + " stations are associated when the load begins");
        }
        m_busyBefore = m_medium.Busy();
        m_collidedBefore = m_medium.Collided();
        m_medium.frames = 0;
    });
}

/// The station that a client's packets come from.
unsigned
Scene::Station(unsigned client) const
{
    unsigned own = m_args.stations - m_args.siblings;
    if (m_args.sibling != "mesh" || client < own)
    {
        return client;
    }
    return client < m_args.stations ? m_devices.GetN() - 1 : client - m_args.siblings;
}

void
Scene::MakeWifi()
{
    bool ac = m_args.phy == "11ac";
    bool n = ac || m_args.phy == "11n";
    WifiHelper wifi;
    wifi.SetStandard(ac ? WIFI_STANDARD_80211ac : n ? WIFI_STANDARD_80211n : WIFI_STANDARD_80211g);
    std::string manager = m_args.rateControl == "minstrel" ? (n ? "MinstrelHt" : "Minstrel") : "Aarf";
    wifi.SetRemoteStationManager("ns3::" + manager + "WifiManager");

    PhyHelper phy(m_args.streams);
    if (ac)
    {
        phy.SetWide();
        Config::SetDefault("ns3::WifiMac::BE_MaxAmpduSize", UintegerValue((1 << 20) - 1));
    }
    WifiMacHelper mac;
    Ssid ssid("dense");
    mac.SetType("ns3::ApWifiMac", "Ssid", SsidValue(ssid), "QosSupported", BooleanValue(n));
    m_ap = DynamicCast<WifiNetDevice>(wifi.Install(phy, mac, m_apNode).Get(0));
    // A station must not leave because beacons collide.
    mac.SetType("ns3::StaWifiMac", "Ssid", SsidValue(ssid), "QosSupported", BooleanValue(n),
                "MaxMissedBeacons", UintegerValue(10000));
    m_devices = wifi.Install(phy, mac, m_stations);
    wifi.AssignStreams(NetDeviceContainer(m_ap), 1000);
    wifi.AssignStreams(m_devices, 2000);

    unsigned aggregate = ac ? 64 : n ? 32 : 1; // the block ACK window; ath9k: ATH_AMPDU_SUBFRAME_DEFAULT
    unsigned depth = n ? 2 : 8;                // ath9k: ATH_AGGR_MIN_QDEPTH, ATH_NON_AGGR_MIN_QDEPTH
    m_queue = CreateObject<ApQueue>(m_args.ap == "fifo512" ? ApQueue::FIFO : ApQueue::MAC80211, depth, ac);
    m_queue->Watch(m_ap->GetMac()->GetTxopQueue(n ? AC_BE : AC_BE_NQOS));
    if (m_args.driver == "aql")
    {
        // ieee80211_calc_expected_tx_airtime: 54 Mbit/s and an exchange's overhead, or the highest MCS and a sixteenth of it,
        // which is a thirty-second where a frame takes less than 70 us
        double part = ac || m_args.streams > 1 ? 32 : 16;
        m_queue->LimitAirtime(n ? (ac ? 390 : 65) * m_args.streams : 54, n ? 100 / part : 100);
    }
    Add(m_ap, 0);
    // Stations pay for the airtime of frames to them, retries included, and of
    // frames from them (mac80211's AIRTIME_USE_TX and AIRTIME_USE_RX).
    m_ap->GetPhy()->TraceConnectWithoutContext(
        "PhyTxPsduBegin",
        Callback<void, WifiConstPsduMap, WifiTxVector, double>(
            [this](WifiConstPsduMap psdus, WifiTxVector vector, double) {
                auto& psdu = psdus.begin()->second;
                if (psdu->GetHeader(0).IsData())
                {
                    m_queue->ChargeSent(psdu->GetAddr1(), WifiPhy::CalculateTxDuration(psdus, vector, m_ap->GetPhy()->GetPhyBand()));
                }
            }));
    m_ap->GetPhy()->TraceConnectWithoutContext(
        "MonitorSnifferRx",
        Callback<void, Ptr<const Packet>, uint16_t, WifiTxVector, MpduInfo, SignalNoiseDbm, uint16_t>(
            [this](Ptr<const Packet> packet, uint16_t, WifiTxVector vector, MpduInfo info, SignalNoiseDbm, uint16_t) {
                Ptr<Packet> frame = packet->Copy();
                if (info.type != NORMAL_MPDU)
                {
                    AmpduSubframeHeader delimiter;
                    frame->RemoveHeader(delimiter);
                }
                WifiMacHeader header;
                frame->PeekHeader(header);
                if (!header.IsData() || header.GetAddr1() != m_ap->GetMac()->GetAddress())
                {
                    return;
                }
                Time airtime = WifiPhy::CalculateTxDuration(packet->GetSize(), vector, m_ap->GetPhy()->GetPhyBand());
                if (info.type == MIDDLE_MPDU_IN_AGGREGATE || info.type == LAST_MPDU_IN_AGGREGATE)
                {
                    airtime -= WifiPhy::CalculatePhyPreambleAndHeaderDuration(vector);
                }
                if (m_args.driver != "tx-only")
                {
                    m_queue->Charge(header.GetAddr2(), airtime);
                }
                m_queue->Receive(header.GetAddr2(), frame->GetSize());
            }));
    unsigned stations = m_devices.GetN();
    for (unsigned i = 0; i < stations; i++)
    {
        auto device = DynamicCast<WifiNetDevice>(m_devices.Get(i));
        bool neighbour = m_args.scheduler.mesh && i == stations - 1;
        unsigned third = m_args.distance == "mixed" && !neighbour ? i % LOSSES.size() : 0;
        // drivers bound the airtime of an aggregate
        m_queue->AddStation(device->GetMac()->GetAddress(), std::max<unsigned>(1, aggregate * RATES[third] / RATES[0]));
        // One station at a time: simultaneous association requests collide until they time out.
        Simulator::Schedule(Seconds((GREETINGS - 0.5) * i / stations), &Scene::Add, this, device, LOSSES[third]);
        device->GetMac()->TraceConnectWithoutContext("Assoc", Callback<void, Mac48Address>([this, i](Mac48Address) {
            m_associated.insert(i);
            // a station forgets its neighbours when it associates
            Simulator::ScheduleNow(&Introduce, m_devices.Get(i), m_ap, m_apAddress);
        }));
    }
}

/// Puts a device on the medium.
void
Scene::Add(Ptr<WifiNetDevice> device, double lossDb)
{
    m_medium.Add(device->GetPhy(), device->GetMac()->GetAddress(), lossDb);
}

void
Scene::MakeNetwork()
{
    InternetStackHelper internet;
    internet.SetIpv6StackInstall(false);
    internet.Install(m_servers);
    internet.Install(m_apNode);
    internet.Install(m_stations);
    m_apNode.Get(0)->GetObject<TrafficControlLayer>()->SetRootQueueDiscOnDevice(m_ap, m_queue);

    Ipv4AddressHelper addresses;
    addresses.SetBase("10.1.0.0", "255.255.255.0");
    TrafficControlHelper none;
    std::vector<Ipv4Address> servers;
    for (unsigned k = 0; k < m_servers.GetN(); k++)
    {
        PointToPointHelper link;
        link.SetDeviceAttribute("DataRate", DataRateValue(DataRate(WIRE_RATE)));
        link.SetChannelAttribute("Delay", TimeValue(MicroSeconds(500 * (m_args.rttMs > 0 ? m_args.rttMs : RTT_MIXTURE[k]))));
        link.SetQueue("ns3::DropTailQueue<Packet>", "MaxSize", StringValue("10000p"));
        NetDeviceContainer wired = link.Install(m_servers.Get(k), m_apNode.Get(0));
        Ipv4InterfaceContainer wire = addresses.Assign(wired);
        addresses.NewNetwork();
        none.Uninstall(wired);
        servers.push_back(wire.GetAddress(0));
        RouteByDefault(m_servers.Get(k), wire.GetAddress(1));
    }
    addresses.SetBase("10.2.0.0", "255.255.255.0");
    m_apAddress = addresses.Assign(NetDeviceContainer(m_ap)).GetAddress(0);
    Ipv4InterfaceContainer stations = addresses.Assign(m_devices);
    none.Uninstall(m_devices);
    for (unsigned i = 0; i < m_devices.GetN(); i++)
    {
        RouteByDefault(m_stations.Get(i), m_apAddress);
        Introduce(m_ap, m_devices.Get(i), stations.GetAddress(i));
    }
    for (unsigned i = 0; i < m_all; i++)
    {
        m_clients[i].node = m_stations.Get(Station(i));
        m_clients[i].address = stations.GetAddress(Station(i));
        m_clients[i].server = m_servers.Get(i % m_servers.GetN());
        m_clients[i].serverAddress = servers[i % servers.size()];
    }
    m_scheduler = std::make_unique<StationScheduler>(m_args.scheduler, m_queue, m_ap, m_devices, m_medium);
}

void
Scene::MakeTraffic(unsigned i)
{
    Client& client = m_clients[i];
    auto jitter = CreateObject<UniformRandomVariable>();
    client.start = Seconds(WARM_UP + jitter->GetValue(0, 1));

    // A few packets each way, so that block ack agreements exist before the load.
    for (bool down : {true, false})
    {
        UdpClientHelper greet(down ? client.address : client.serverAddress, 9);
        greet.SetAttribute("MaxPackets", UintegerValue(5));
        greet.SetAttribute("Interval", StringValue("100us"));
        greet.SetAttribute("PacketSize", UintegerValue(1000));
        greet.Install(down ? client.server : client.node)
            .Start(Seconds(GREETINGS + (WARM_UP - GREETINGS - 1) * (i + (down ? 0 : 0.5)) / m_all));
    }
    if (i >= m_args.stations)
    {
        MakeInteractive(i, client.start);
        return;
    }

    uint16_t download = Station(i) == i ? DOWNLOAD : DOWNLOAD + i;
    PacketSinkHelper sink("ns3::TcpSocketFactory", InetSocketAddress(Ipv4Address::GetAny(), download));
    auto sinks = sink.Install(client.node);
    sinks.Get(0)->TraceConnectWithoutContext(
        "Rx",
        Callback<void, Ptr<const Packet>, const Address&>([this, i](Ptr<const Packet> packet, const Address&) {
            Client& c = m_clients[i];
            c.received += packet->GetSize();
            if (c.received >= uint64_t(m_args.fileMb * 1e6) && c.completion.IsZero())
            {
                Complete(i);
            }
        }));
    BulkSendHelper bulk("ns3::TcpSocketFactory", InetSocketAddress(client.address, download));
    bulk.SetAttribute("MaxBytes", UintegerValue(m_args.fileMb * 1e6));
    bulk.SetAttribute("SendSize", UintegerValue(1448));
    auto sender = bulk.Install(client.server);
    sender.Start(client.start);
    Simulator::Schedule(client.start + NanoSeconds(1), &Scene::WatchDownload, this, i, sender.Get(0));

    InetSocketAddress up(client.serverAddress, UPLOAD + i);
    client.uploadServer = CreateObject<UploadServer>(UPLOAD + i, m_args.traffic != "cbr");
    client.server->AddApplication(client.uploadServer);
    if (m_args.traffic == "cbr")
    {
        client.upload = CreateObject<ConstantUpload>(up, m_args.uploadKbit * 1000);
        Simulator::Schedule(client.start + NanoSeconds(1), &Scene::WatchUpload, this, i);
    }
    else if (m_args.traffic != "none")
    {
        client.upload = CreateObject<BrowseUpload>(up, m_args.uploadKbit * 1000, m_args.traffic == "spdy");
    }
    if (client.upload)
    {
        client.node->AddApplication(client.upload);
        client.upload->SetStartTime(client.start);
    }
    if (m_args.interactive != "none" && !m_args.interactiveAlone && i < INTERACTIVE_CLIENTS)
    {
        MakeInteractive(i, client.start);
    }
}

void
Scene::MakeInteractive(unsigned i, Time start)
{
    Client& client = m_clients[i];
    uint16_t port = INTERACTIVE + i;
    if (m_args.interactive == "ssh" || m_args.interactive == "chat")
    {
        bool ssh = m_args.interactive == "ssh";
        auto server = CreateObject<UploadServer>(port, true);
        client.server->AddApplication(server);
        client.exchange = CreateObject<Exchange>(InetSocketAddress(client.serverAddress, port),
                                                 ssh ? MilliSeconds(300) : Seconds(2), ssh ? 36 : 200, ssh ? 36 : 100);
        client.node->AddApplication(client.exchange);
        client.exchange->SetStartTime(start);
        return;
    }
    if (m_args.interactive == "dns")
    {
        UdpEchoServerHelper(port).Install(client.server);
        client.lookups = CreateObject<Lookups>(InetSocketAddress(client.serverAddress, port), MilliSeconds(500), DNS_BYTES);
        client.node->AddApplication(client.lookups);
        client.lookups->SetStartTime(start);
        return;
    }
    auto stream = [&client, port, start](bool down, uint32_t bytes, double bitrate) {
        UdpServerHelper receiver(port);
        auto receivers = receiver.Install(down ? client.node : client.server);
        receivers.Get(0)->TraceConnectWithoutContext("Rx", Callback<void, Ptr<const Packet>>([&client](Ptr<const Packet> packet) {
            SeqTsHeader header;
            packet->PeekHeader(header);
            client.delays.push_back((Simulator::Now() - header.GetTs()).GetSeconds());
        }));
        UdpClientHelper sender(down ? client.address : client.serverAddress, port);
        sender.SetAttribute("MaxPackets", UintegerValue(UINT32_MAX));
        sender.SetAttribute("PacketSize", UintegerValue(bytes));
        sender.SetAttribute("Interval", TimeValue(Seconds(bytes * 8 / bitrate)));
        sender.Install(down ? client.server : client.node).Start(start);
    };
    if (m_args.interactive == "g711")
    {
        // both ways, 20 ms of 64 kbit/s and an RTP header in each packet
        stream(true, G711_BYTES, G711_BYTES * 8 / G711_SECONDS);
        stream(false, G711_BYTES, G711_BYTES * 8 / G711_SECONDS);
        return;
    }
    // A stream to the client: 10 kbit/s like a voice call, 1 Mbit/s like video.
    bool voice = m_args.interactive == "10";
    stream(true, voice ? 50 : 1200, voice ? 10e3 : 1e6);
}

/// Other APs on the channel. Each sends frames of 1500 bytes to one station, at
/// 54 Mbit/s (11g) or 65 Mbit/s (11n), as often as it takes for all of them
/// together to use the given share of the airtime.
void
Scene::MakeNeighbours()
{
    bool n = m_args.phy == "11n";
    for (unsigned k = 0; k < NEIGHBOURS; k++)
    {
        NodeContainer nodes(2);
        WifiHelper wifi;
        wifi.SetStandard(n ? WIFI_STANDARD_80211n : WIFI_STANDARD_80211g);
        wifi.SetRemoteStationManager("ns3::ConstantRateWifiManager",
                                     "DataMode", StringValue(n ? "HtMcs7" : "ErpOfdmRate54Mbps"),
                                     "ControlMode", StringValue("ErpOfdmRate24Mbps"));
        PhyHelper phy;
        WifiMacHelper mac;
        Ssid ssid("neighbour" + std::to_string(k));
        mac.SetType("ns3::ApWifiMac", "Ssid", SsidValue(ssid), "QosSupported", BooleanValue(n));
        NetDeviceContainer devices(wifi.Install(phy, mac, nodes.Get(0)));
        mac.SetType("ns3::StaWifiMac", "Ssid", SsidValue(ssid), "QosSupported", BooleanValue(n),
                    "MaxMissedBeacons", UintegerValue(10000));
        devices.Add(wifi.Install(phy, mac, nodes.Get(1)));
        wifi.AssignStreams(devices, 3000 + 100 * k);
        for (unsigned d = 0; d < 2; d++)
        {
            Add(DynamicCast<WifiNetDevice>(devices.Get(d)), 0);
        }
        PacketSocketHelper sockets;
        sockets.Install(nodes);
        PacketSocketAddress to;
        to.SetSingleDevice(devices.Get(0)->GetIfIndex());
        to.SetPhysicalAddress(devices.Get(1)->GetAddress());
        to.SetProtocol(1);
        // one frame: preamble and 1536 bytes, SIFS, ACK at 24 Mbit/s
        double frame = 20e-6 + 1536 * 8 / (n ? 65e6 : 54e6) + 16e-6 + 28e-6;
        OnOffHelper traffic("ns3::PacketSocketFactory", to);
        traffic.SetConstantRate(DataRate(1500 * 8 * m_args.neighbourShare / NEIGHBOURS / frame), 1500);
        traffic.Install(nodes.Get(0)).Start(Seconds(WARM_UP - 1 + 0.1 * k));
    }
}

void
Scene::WatchDownload(unsigned, Ptr<Application> app)
{
    Ptr<Socket> socket = DynamicCast<BulkSendApplication>(app)->GetSocket();
    socket->TraceConnectWithoutContext(
        "CongState",
        Callback<void, TcpSocketState::TcpCongState_t, TcpSocketState::TcpCongState_t>(
            [this](TcpSocketState::TcpCongState_t, TcpSocketState::TcpCongState_t now) {
                m_timeouts += now == TcpSocketState::CA_LOSS;
            }));
    socket->TraceConnectWithoutContext("RTT", Callback<void, Time, Time>([this](Time, Time rtt) {
        m_downloadRtt.push_back(rtt.GetSeconds());
    }));
}

void
Scene::WatchUpload(unsigned i)
{
    Ptr<Socket> socket = DynamicCast<ConstantUpload>(m_clients[i].upload)->GetSocket();
    socket->TraceConnectWithoutContext("RTT", Callback<void, Time, Time>([this, i](Time, Time rtt) {
        m_uploadRtt.push_back(rtt.GetSeconds());
        if (m_scheduler->IsWaiting(Station(i)))
        {
            m_waitingRtt.push_back(rtt.GetSeconds());
        }
    }));
}

void
Scene::EndUpload(unsigned i)
{
    Client& client = m_clients[i];
    client.uploadEnd = Simulator::Now();
    client.uploaded = client.uploadServer->Received();
}

void
Scene::Complete(unsigned i)
{
    Client& client = m_clients[i];
    client.completion = Simulator::Now() - client.start;
    if (!m_args.uploadGoesOn)
    {
        EndUpload(i);
        if (client.upload)
        {
            client.upload->End();
        }
    }
    if (--m_left == 0)
    {
        Simulator::Stop();
    }
}

void
Scene::Run()
{
    Simulator::Stop(Seconds(WARM_UP + m_args.limit));
    Simulator::Run();
    m_end = Simulator::Now();
    for (unsigned i = 0; i < m_args.stations; i++)
    {
        if (m_clients[i].uploadEnd.IsZero())
        {
            EndUpload(i);
        }
    }
}

void
Scene::Print() const
{
    std::vector<double> completions, own, siblings, delays, jitter;
    double uploaded = 0, siblingUploaded = 0;
    for (unsigned i = 0; i < m_all; i++)
    {
        const Client& client = m_clients[i];
        if (i < m_args.stations)
        {
            completions.push_back(client.completion.IsZero() ? m_args.limit : client.completion.GetSeconds());
            bool sibling = i + m_args.siblings >= m_args.stations;
            (sibling ? siblings : own).push_back(completions.back());
            double kbit = client.uploaded * 8 / 1e3 / (client.uploadEnd - client.start).GetSeconds() / m_args.stations;
            uploaded += kbit;
            siblingUploaded += sibling ? kbit * m_args.stations / m_args.siblings : 0;
        }
        const std::vector<double>& samples = client.exchange ? client.exchange->delays
                                             : client.lookups ? client.lookups->delays
                                                              : client.delays;
        for (size_t k = 0; k < samples.size(); k++)
        {
            delays.push_back(samples[k]);
            if (k > 0)
            {
                jitter.push_back(std::abs(samples[k] - samples[k - 1]));
            }
        }
    }
    std::sort(completions.begin(), completions.end());
    double busy = (m_medium.Busy() - m_busyBefore).GetSeconds();
    double seconds = m_end.GetSeconds() - WARM_UP;
    const StationScheduler::Options& s = m_args.scheduler;
    std::printf("{\"ap\": \"%s\", \"form\": \"%s\", \"rts\": %s, \"upload_goes_on\": %s, \"traffic\": \"%s\", "
                "\"upload_kbit\": %g, \"stations\": %u, \"phy\": \"%s\", \"rate_control\": \"%s\", \"seed\": %u, "
                "\"file_mb\": %g, \"active\": %u, \"slot_ms\": %u, \"trickle_kbit\": %g, \"interactive\": \"%s\", "
                "\"interactive_alone\": %s, \"neighbour_share\": %g, \"driver\": \"%s\", \"rtt_ms\": %g, \"sibling\": \"%s\", "
                "\"windows\": \"%s\", \"distance\": \"%s\", \"streams\": %u, ",
                m_args.ap.c_str(), s.form.c_str(), s.rts ? "true" : "false", m_args.uploadGoesOn ? "true" : "false",
                m_args.traffic.c_str(), m_args.traffic == "none" ? 0. : m_args.uploadKbit, m_args.stations,
                m_args.phy.c_str(), m_args.rateControl.c_str(), m_args.seed, m_args.fileMb, s.active, s.slotMs,
                s.trickleKbit, m_args.interactive.c_str(), m_args.interactiveAlone ? "true" : "false", m_args.neighbourShare,
                m_args.driver.c_str(), m_args.rttMs, m_args.sibling.c_str(), s.windows.c_str(), m_args.distance.c_str(), m_args.streams);
    std::printf("\"worst_s\": %.6f, \"median_s\": %.6f, \"best_s\": %.6f, \"unfinished\": %u, "
                "\"upload_delivered_kbit\": %.6f, \"collided_share\": %.6f, \"busy_share\": %.6f, "
                "\"timeouts\": %llu, \"frames_per_s\": %.3f, "
                "\"download_rtt_mean_ms\": %.3f, \"download_rtt_p95_ms\": %.3f, \"upload_rtt_p95_ms\": %.3f, "
                "\"waiting_upload_rtt_p95_ms\": %.3f, ",
                completions.back(), Quantile(completions, 0.5), completions.front(), m_left, uploaded,
                busy > 0 ? (m_medium.Collided() - m_collidedBefore).GetSeconds() / busy : 0, busy / seconds,
                (unsigned long long)m_timeouts, m_medium.frames / seconds,
                m_downloadRtt.empty() ? 0 : 1e3 * std::accumulate(m_downloadRtt.begin(), m_downloadRtt.end(), 0.) / m_downloadRtt.size(),
                1e3 * Quantile(m_downloadRtt, 0.95), 1e3 * Quantile(m_uploadRtt, 0.95), 1e3 * Quantile(m_waitingRtt, 0.95));
    std::printf("\"delay_median_ms\": %.3f, \"delay_p99_ms\": %.3f, \"jitter_median_ms\": %.3f, \"jitter_p99_ms\": %.3f, "
                "\"engagements\": %llu, \"sibling_worst_s\": %.6f, \"sibling_median_s\": %.6f, \"sibling_upload_kbit\": %.6f, "
                "\"own_worst_s\": %.6f, \"window_exponent\": %.3f, \"simulated_s\": %.3f}\n",
                1e3 * Quantile(delays, 0.5), 1e3 * Quantile(delays, 0.99), 1e3 * Quantile(jitter, 0.5),
                1e3 * Quantile(jitter, 0.99), (unsigned long long)m_scheduler->Engagements(),
                Quantile(siblings, 1), Quantile(siblings, 0.5), siblingUploaded, Quantile(own, 1), m_scheduler->MeanExponent(), seconds);
}

} // namespace

int
main(int argc, char** argv)
{
    Arguments args;
    args.scheduler.form = "none";
    CommandLine cmd(__FILE__);
    cmd.AddValue("ap", "fifo512 or mac80211", args.ap);
    cmd.AddValue("form", "none, ap, middlebox, wifirr, wifirr-htb or wifox", args.scheduler.form);
    cmd.AddValue("rts", "the AP sends RTS", args.scheduler.rts);
    cmd.AddValue("traffic", "what clients send: browse, spdy, cbr or none", args.traffic);
    cmd.AddValue("upload-kbit", "how much of it, each client, kbit/s", args.uploadKbit);
    cmd.AddValue("upload-goes-on", "after the client's own download too", args.uploadGoesOn);
    cmd.AddValue("stations", "1 to 60", args.stations);
    cmd.AddValue("phy", "11g, 11n (20 MHz) or 11ac (80 MHz)", args.phy);
    cmd.AddValue("streams", "spatial streams of the AP and all stations, 1 or 2", args.streams);
    cmd.AddValue("distance", "of the stations: near, or mixed, a third each for MCS 7, 4 and 1", args.distance);
    cmd.AddValue("rate-control", "minstrel or aarf (11g only)", args.rateControl);
    cmd.AddValue("file-mb", "each client downloads so many 10^6 bytes", args.fileMb);
    cmd.AddValue("seed", "of all random numbers, from 1", args.seed);
    cmd.AddValue("limit", "simulated seconds after which the run ends", args.limit);
    cmd.AddValue("active", "K; 0: the form's own", args.scheduler.active);
    cmd.AddValue("slot-ms", "T; 0: the form's own", args.scheduler.slotMs);
    cmd.AddValue("trickle-kbit", "a waiting client's or group's rate; 0: the form's own", args.scheduler.trickleKbit);
    cmd.AddValue("interactive", "none, 10 or 1000 (kbit/s streams), g711, ssh, chat or dns", args.interactive);
    cmd.AddValue("interactive-alone", "by five more clients with nothing else, not by five of the stations", args.interactiveAlone);
    cmd.AddValue("neighbour-share", "airtime that two other APs ask for, 0 to 0.9", args.neighbourShare);
    cmd.AddValue("driver", "the AP's: ath9k, tx-only (nothing charged for what stations send) or aql (airtime queue limits)", args.driver);
    cmd.AddValue("rtt-ms", "to the server and back; 0: 2, 20, 50 and 100, one client after the other", args.rttMs);
    cmd.AddValue("sibling", "none, or the last third of the stations are in another BSS of the radio (bss) or behind a mesh neighbour (mesh)", args.sibling);
    cmd.AddValue("windows", "clients' CWmin is 2^windows - 1, 4 to 15; off: ns-3's; auto: as wifirrd decides", args.scheduler.windows);
    cmd.AddValue("trace", "the policy's decisions, to stderr", args.scheduler.trace);
    cmd.Parse(argc, argv);
    OneOf("ap", args.ap, {"fifo512", "mac80211"});
    OneOf("form", args.scheduler.form, {"none", "ap", "middlebox", "wifirr", "wifirr-htb", "wifox"});
    OneOf("traffic", args.traffic, {"browse", "spdy", "cbr", "none"});
    OneOf("phy", args.phy, {"11g", "11n", "11ac"});
    OneOf("distance", args.distance, {"near", "mixed"});
    OneOf("rate-control", args.rateControl, {"minstrel", "aarf"});
    OneOf("interactive", args.interactive, {"none", "10", "1000", "g711", "ssh", "chat", "dns"});
    OneOf("driver", args.driver, {"ath9k", "tx-only", "aql"});
    OneOf("sibling", args.sibling, {"none", "bss", "mesh"});
    OneOf("windows", args.scheduler.windows, {"off", "auto", "4", "5", "6", "7", "8", "9", "10", "11", "12", "13", "14", "15"});
    if (args.stations < 1 || args.stations > 60)
    {
        Refuse("--stations " + std::to_string(args.stations) + ": not 1 to 60");
    }
    args.siblings = args.sibling == "none" ? 0 : args.stations / SIBLING_PART;
    if (args.sibling == "mesh" && args.siblings == 0)
    {
        Refuse("--sibling mesh: needs at least " + std::to_string(SIBLING_PART) + " --stations");
    }
    if (args.streams < 1 || args.streams > 2 || (args.streams == 2 && args.phy == "11g"))
    {
        Refuse("--streams " + std::to_string(args.streams) + ": not 1 or, with --phy 11n or 11ac, 2");
    }
    if (args.distance == "mixed" && (args.driver == "aql" || args.phy == "11ac"))
    {
        Refuse("--distance mixed: neither with --driver aql, which estimates one rate here, nor with --phy 11ac");
    }
    if (args.neighbourShare > 0 && args.phy == "11ac")
    {
        Refuse("--neighbour-share: needs --phy 11g or 11n");
    }
    if (args.rttMs < 0)
    {
        Refuse("--rtt-ms must be 0 or more");
    }
    if (args.driver != "ath9k" && args.ap == "fifo512")
    {
        Refuse("--driver " + args.driver + ": needs --ap mac80211");
    }
    if (args.scheduler.windows != "off" && args.phy == "11g")
    {
        Refuse("--windows " + args.scheduler.windows + ": needs --phy 11n or 11ac (802.11g has no WMM here)");
    }
    if (args.uploadKbit <= 0 || args.fileMb <= 0 || args.limit <= 0 || args.seed < 1 || args.neighbourShare < 0 ||
        args.neighbourShare > 0.9)
    {
        Refuse("--upload-kbit, --file-mb, --limit and --seed must be above 0, --neighbour-share 0 to 0.9");
    }
    if (args.ap == "fifo512" && args.scheduler.form == "wifirr")
    {
        Refuse("--form wifirr: airtime weights need --ap mac80211 (wifirrd falls back to htb there)");
    }
    if (args.interactiveAlone && args.interactive == "none")
    {
        Refuse("--interactive-alone needs --interactive");
    }
    if (args.phy != "11g" && args.rateControl == "aarf")
    {
        Refuse("--rate-control aarf: ns-3 has no AARF for 802.11n and later");
    }
    args.scheduler.mesh = args.sibling == "mesh";
    // The link rate that wifirrd would derive from the stations' expected throughput.
    args.scheduler.linkKbit = (args.phy == "11ac" ? 210000 : args.phy == "11n" ? 45000 : 25000) * args.streams;
    if (args.distance == "mixed")
    {
        args.scheduler.linkKbit *= std::accumulate(RATES.begin(), RATES.end(), 0.) / RATES.size() / RATES[0];
    }

    {
        Scene scene(args);
        scene.Run();
        scene.Print();
    }
    Simulator::Destroy();
    return 0;
}
