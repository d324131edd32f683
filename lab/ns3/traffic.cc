// SPDX-License-Identifier: Apache-2.0
#include "traffic.h"

#include "ns3/double.h"
#include "ns3/seq-ts-header.h"
#include "ns3/simulator.h"
#include "ns3/tcp-socket-factory.h"
#include "ns3/udp-socket-factory.h"

#include <cstring>

using namespace ns3;

namespace dense
{

namespace
{

constexpr uint32_t WRITE = 512;         // bytes
constexpr uint32_t REQUEST_MEAN = 500;  // bytes
constexpr unsigned PAGE_BROWSE = 20;    // requests
constexpr unsigned PAGE_SPDY = 40;
const Time LOOKUP_TIMEOUT = Seconds(5); // RES_TIMEOUT

Ptr<Packet>
MakeRequest(uint32_t size, uint32_t answer)
{
    std::vector<uint8_t> bytes(size);
    std::memcpy(bytes.data(), &size, sizeof(size));
    std::memcpy(bytes.data() + sizeof(size), &answer, sizeof(answer));
    return Create<Packet>(bytes.data(), size);
}

} // namespace

ConstantUpload::ConstantUpload(InetSocketAddress server, double bitsPerSecond)
    : m_server(server),
      m_interval(ns3::Seconds(WRITE * 8 / bitsPerSecond))
{
}

Ptr<Socket>
ConstantUpload::GetSocket() const
{
    return m_socket;
}

void
ConstantUpload::StartApplication()
{
    m_running = true;
    m_socket = Socket::CreateSocket(GetNode(), TcpSocketFactory::GetTypeId());
    m_socket->SetSendCallback(MakeCallback(&ConstantUpload::Writable, this));
    m_socket->Connect(m_server);
    Write();
}

void
ConstantUpload::End()
{
    m_running = false;
    if (m_socket)
    {
        m_socket->Close();
    }
}

void
ConstantUpload::Write()
{
    if (!m_running)
    {
        return;
    }
    m_unsent += WRITE;
    Flush();
    Simulator::Schedule(m_interval, &ConstantUpload::Write, this);
}

void
ConstantUpload::Writable(Ptr<Socket>, uint32_t)
{
    Flush();
}

void
ConstantUpload::Flush()
{
    while (m_running && m_unsent >= WRITE && m_socket->GetTxAvailable() >= WRITE &&
           m_socket->Send(Create<Packet>(WRITE)) > 0)
    {
        m_unsent -= WRITE;
    }
}

BrowseUpload::BrowseUpload(InetSocketAddress server, double bitsPerSecond, bool multiplexed)
    : m_server(server),
      m_multiplexed(multiplexed),
      m_gap(CreateObject<ExponentialRandomVariable>()),
      m_size(CreateObject<UniformRandomVariable>())
{
    m_gap->SetAttribute("Mean", DoubleValue(REQUEST_MEAN * 8 / bitsPerSecond));
}

void
BrowseUpload::StartApplication()
{
    m_running = true;
    Simulator::Schedule(ns3::Seconds(m_gap->GetValue()), &BrowseUpload::Request, this);
}

void
BrowseUpload::End()
{
    m_running = false;
    for (auto& connection : m_connections)
    {
        connection->socket->Close();
    }
}

void
BrowseUpload::NewPage()
{
    for (auto& connection : m_connections)
    {
        connection->socket->Close();
    }
    m_connections.clear();
    m_left = m_multiplexed ? PAGE_SPDY : PAGE_BROWSE;
    for (unsigned i = 0; i < (m_multiplexed ? 1 : 2); i++)
    {
        auto connection = std::make_unique<Connection>();
        connection->socket = Socket::CreateSocket(GetNode(), TcpSocketFactory::GetTypeId());
        connection->socket->SetConnectCallback(MakeCallback(&BrowseUpload::Connected, this),
                                               MakeCallback(&BrowseUpload::Lost, this));
        connection->socket->SetRecvCallback(MakeCallback(&BrowseUpload::Received, this));
        connection->socket->Connect(m_server);
        m_connections.push_back(std::move(connection));
    }
}

void
BrowseUpload::Request()
{
    if (!m_running)
    {
        return;
    }
    m_pending++;
    HandOut();
    Simulator::Schedule(ns3::Seconds(m_gap->GetValue()), &BrowseUpload::Request, this);
}

void
BrowseUpload::HandOut()
{
    while (m_pending > 0)
    {
        if (m_left == 0)
        {
            for (auto& connection : m_connections)
            {
                if (connection->unanswered > 0 || !connection->queue.empty())
                {
                    return;
                }
            }
            NewPage();
        }
        Connection* idlest = nullptr;
        for (auto& connection : m_connections)
        {
            if (!idlest || connection->queue.size() + connection->unanswered < idlest->queue.size() + idlest->unanswered)
            {
                idlest = connection.get();
            }
        }
        idlest->queue.push_back(m_size->GetInteger(300, 700));
        m_left--;
        m_pending--;
        Pump(*idlest);
    }
}

void
BrowseUpload::Pump(Connection& connection)
{
    while (connection.connected && !connection.queue.empty() && (m_multiplexed || connection.unanswered == 0))
    {
        uint32_t answer = m_size->GetInteger(500, 900);
        if (connection.socket->Send(MakeRequest(connection.queue.front(), answer)) <= 0)
        {
            return;
        }
        connection.queue.pop_front();
        connection.due += answer;
        connection.unanswered++;
    }
}

BrowseUpload::Connection*
BrowseUpload::Find(Ptr<Socket> socket)
{
    for (auto& connection : m_connections)
    {
        if (connection->socket == socket)
        {
            return connection.get();
        }
    }
    return nullptr; // the socket is of an earlier page
}

void
BrowseUpload::Connected(Ptr<Socket> socket)
{
    Connection* connection = Find(socket);
    if (connection)
    {
        connection->connected = true;
        Pump(*connection);
    }
}

/// A failed connection ends the page, as in a browser.
void
BrowseUpload::Lost(Ptr<Socket> socket)
{
    if (m_running && Find(socket))
    {
        NewPage();
        HandOut();
    }
}

void
BrowseUpload::Received(Ptr<Socket> socket)
{
    Connection* connection = Find(socket);
    Ptr<Packet> packet;
    while ((packet = socket->Recv()))
    {
        if (connection)
        {
            connection->due -= packet->GetSize();
        }
    }
    if (connection && connection->due == 0)
    {
        connection->unanswered = 0;
        Pump(*connection);
        if (m_running)
        {
            HandOut();
        }
    }
}

UploadServer::UploadServer(uint16_t port, bool answers)
    : m_port(port),
      m_answers(answers)
{
}

uint64_t
UploadServer::Received() const
{
    return m_received;
}

void
UploadServer::StartApplication()
{
    m_listener = Socket::CreateSocket(GetNode(), TcpSocketFactory::GetTypeId());
    m_listener->Bind(InetSocketAddress(Ipv4Address::GetAny(), m_port));
    m_listener->Listen();
    m_listener->SetAcceptCallback(MakeNullCallback<bool, Ptr<Socket>, const Address&>(),
                                  MakeCallback(&UploadServer::Accept, this));
}

void
UploadServer::Accept(Ptr<Socket> socket, const Address&)
{
    m_parsers[socket];
    socket->SetRecvCallback(MakeCallback(&UploadServer::Read, this));
    socket->SetCloseCallbacks(MakeCallback(&UploadServer::Closed, this), MakeCallback(&UploadServer::Closed, this));
}

void
UploadServer::Closed(Ptr<Socket> socket)
{
    socket->Close();
    m_parsers.erase(socket);
}

void
UploadServer::Read(Ptr<Socket> socket)
{
    Parser& parser = m_parsers[socket];
    Ptr<Packet> packet;
    while ((packet = socket->Recv()))
    {
        m_received += packet->GetSize();
        if (!m_answers)
        {
            continue;
        }
        std::vector<uint8_t> bytes(packet->GetSize());
        packet->CopyData(bytes.data(), bytes.size());
        for (size_t at = 0; at < bytes.size();)
        {
            if (parser.header.size() < 8)
            {
                parser.header.push_back(bytes[at++]);
                if (parser.header.size() == 8)
                {
                    std::memcpy(&parser.left, parser.header.data(), 4);
                    std::memcpy(&parser.answer, parser.header.data() + 4, 4);
                    parser.left -= 8;
                }
                continue;
            }
            size_t take = std::min<size_t>(parser.left, bytes.size() - at);
            at += take;
            parser.left -= take;
            if (parser.left == 0)
            {
                parser.header.clear();
                socket->Send(Create<Packet>(parser.answer));
            }
        }
    }
}

Exchange::Exchange(InetSocketAddress server, Time gap, uint32_t up, uint32_t down)
    : m_server(server),
      m_up(up),
      m_down(down),
      m_gap(CreateObject<ExponentialRandomVariable>())
{
    m_gap->SetAttribute("Mean", DoubleValue(gap.GetSeconds()));
}

void
Exchange::StartApplication()
{
    m_running = true;
    m_socket = Socket::CreateSocket(GetNode(), TcpSocketFactory::GetTypeId());
    m_socket->SetRecvCallback(MakeCallback(&Exchange::Received, this));
    m_socket->Connect(m_server);
    Simulator::Schedule(ns3::Seconds(m_gap->GetValue()), &Exchange::Send, this);
}

void
Exchange::StopApplication()
{
    m_running = false;
}

void
Exchange::Send()
{
    if (!m_running)
    {
        return;
    }
    if (m_socket->Send(MakeRequest(m_up, m_down)) > 0)
    {
        m_sent.push_back(Simulator::Now());
    }
    Simulator::Schedule(ns3::Seconds(m_gap->GetValue()), &Exchange::Send, this);
}

void
Exchange::Received(Ptr<Socket> socket)
{
    Ptr<Packet> packet;
    while ((packet = socket->Recv()))
    {
        m_bytes += packet->GetSize();
    }
    for (; m_bytes >= m_down && !m_sent.empty(); m_bytes -= m_down)
    {
        delays.push_back((Simulator::Now() - m_sent.front()).GetSeconds());
        m_sent.pop_front();
    }
}

Lookups::Lookups(InetSocketAddress server, Time gap, uint32_t bytes)
    : m_server(server),
      m_bytes(bytes),
      m_gap(CreateObject<ExponentialRandomVariable>())
{
    m_gap->SetAttribute("Mean", DoubleValue(gap.GetSeconds()));
}

void
Lookups::StartApplication()
{
    m_socket = Socket::CreateSocket(GetNode(), UdpSocketFactory::GetTypeId());
    m_socket->SetRecvCallback(MakeCallback(&Lookups::Received, this));
    m_socket->Connect(m_server);
    Simulator::Schedule(ns3::Seconds(m_gap->GetValue()), &Lookups::Send, this);
}

void
Lookups::Send()
{
    SeqTsHeader header;
    header.SetSeq(m_number);
    Ptr<Packet> packet = Create<Packet>(m_bytes - header.GetSerializedSize());
    packet->AddHeader(header);
    m_sent[m_number] = Simulator::Now();
    m_socket->Send(packet);
    Simulator::Schedule(LOOKUP_TIMEOUT, &Lookups::Expired, this, m_number);
    m_number++;
    Simulator::Schedule(ns3::Seconds(m_gap->GetValue()), &Lookups::Send, this);
}

void
Lookups::Received(Ptr<Socket> socket)
{
    Ptr<Packet> packet;
    while ((packet = socket->Recv()))
    {
        SeqTsHeader header;
        packet->PeekHeader(header);
        auto sent = m_sent.find(header.GetSeq());
        if (sent != m_sent.end())
        {
            delays.push_back((Simulator::Now() - sent->second).GetSeconds());
            m_sent.erase(sent);
        }
    }
}

void
Lookups::Expired(uint32_t number)
{
    if (m_sent.erase(number))
    {
        delays.push_back(LOOKUP_TIMEOUT.GetSeconds());
    }
}

} // namespace dense
