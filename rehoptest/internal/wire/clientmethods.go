package wire

import amqp "github.com/rabbitmq/amqp091-go"

// What a client says of its connection.
type (
	StartOk struct {
		Properties amqp.Table
		Mechanism  string
		Response   []byte
	}
	TuneOk struct {
		ChannelMax uint16
		FrameMax   uint32
		Heartbeat  uint16
	}
	ConnectionOpen struct{ Vhost string }
	Close          struct {
		Code uint16
		Text string
		Failed
	}
	CloseOk      struct{}
	UpdateSecret struct{ Secret, Reason string }

	ChannelOpen    struct{}
	ChannelFlow    struct{ Active bool }
	ChannelFlowOk  struct{ Active bool }
	ChannelClose   Close
	ChannelCloseOk struct{}
)

// Failed is the method that a close is about, or zero.
type Failed = ID

func decodeConnection(method uint16, r *reader) any {
	switch method {
	case 11:
		m := &StartOk{Properties: r.table(), Mechanism: r.short(), Response: append([]byte(nil), r.long()...)}
		_ = r.short() // locale
		return m
	case 31:
		return &TuneOk{r.u16(), r.u32(), r.u16()}
	case 40:
		m := &ConnectionOpen{r.short()}
		_, _ = r.short(), r.u8()
		return m
	case 50:
		return &Close{r.u16(), r.short(), ID{r.u16(), r.u16()}}
	case 51:
		return &CloseOk{}
	case 70:
		return &UpdateSecret{string(r.long()), r.short()}
	}
	return nil
}

func decodeChannel(method uint16, r *reader) any {
	switch method {
	case 10:
		_ = r.short()
		return &ChannelOpen{}
	case 20:
		return &ChannelFlow{r.u8()&1 != 0}
	case 21:
		return &ChannelFlowOk{r.u8()&1 != 0}
	case 40:
		return &ChannelClose{r.u16(), r.short(), ID{r.u16(), r.u16()}}
	case 41:
		return &ChannelCloseOk{}
	}
	return nil
}

// What a client asks of exchanges.
type (
	ExchangeDeclare struct {
		Name, Kind                             string
		Passive, Durable, AutoDelete, Internal bool
		NoWait                                 bool
		Arguments                              amqp.Table
	}
	ExchangeDelete struct {
		Name             string
		IfUnused, NoWait bool
	}
	ExchangeBind struct {
		Destination, Source, Key string
		NoWait                   bool
		Arguments                amqp.Table
	}
	ExchangeUnbind ExchangeBind
)

func decodeExchange(method uint16, r *reader) any {
	_ = r.u16()
	switch method {
	case 10:
		m := &ExchangeDeclare{Name: r.short(), Kind: r.short()}
		bits := r.u8()
		m.Passive, m.Durable, m.AutoDelete = bits&1 != 0, bits&2 != 0, bits&4 != 0
		m.Internal, m.NoWait = bits&8 != 0, bits&16 != 0
		m.Arguments = r.table()
		return m
	case 20:
		m := &ExchangeDelete{Name: r.short()}
		bits := r.u8()
		m.IfUnused, m.NoWait = bits&1 != 0, bits&2 != 0
		return m
	case 30:
		return &ExchangeBind{r.short(), r.short(), r.short(), r.u8()&1 != 0, r.table()}
	case 40:
		return &ExchangeUnbind{r.short(), r.short(), r.short(), r.u8()&1 != 0, r.table()}
	}
	return nil
}

// What a client asks of queues.
type (
	QueueDeclare struct {
		Name                                    string
		Passive, Durable, Exclusive, AutoDelete bool
		NoWait                                  bool
		Arguments                               amqp.Table
	}
	QueueBind struct {
		Queue, Exchange, Key string
		NoWait               bool
		Arguments            amqp.Table
	}
	QueueUnbind QueueBind
	QueuePurge  struct {
		Queue  string
		NoWait bool
	}
	QueueDelete struct {
		Queue                     string
		IfUnused, IfEmpty, NoWait bool
	}
)

func decodeQueue(method uint16, r *reader) any {
	_ = r.u16()
	switch method {
	case 10:
		m := &QueueDeclare{Name: r.short()}
		bits := r.u8()
		m.Passive, m.Durable, m.Exclusive = bits&1 != 0, bits&2 != 0, bits&4 != 0
		m.AutoDelete, m.NoWait = bits&8 != 0, bits&16 != 0
		m.Arguments = r.table()
		return m
	case 20:
		return &QueueBind{r.short(), r.short(), r.short(), r.u8()&1 != 0, r.table()}
	case 30:
		return &QueuePurge{r.short(), r.u8()&1 != 0}
	case 40:
		m := &QueueDelete{Queue: r.short()}
		bits := r.u8()
		m.IfUnused, m.IfEmpty, m.NoWait = bits&1 != 0, bits&2 != 0, bits&4 != 0
		return m
	case 50:
		return &QueueUnbind{r.short(), r.short(), r.short(), false, r.table()}
	}
	return nil
}

// What a client asks of messages.
type (
	Qos struct {
		Size   uint32
		Count  uint16
		Global bool
	}
	Consume struct {
		Queue, Tag                        string
		NoLocal, NoAck, Exclusive, NoWait bool
		Arguments                         amqp.Table
	}
	Cancel struct {
		Tag    string
		NoWait bool
	}
	CancelOk struct{ Tag string }
	Publish  struct {
		Exchange, Key        string
		Mandatory, Immediate bool
	}
	Get struct {
		Queue string
		NoAck bool
	}
	Ack struct {
		Tag      uint64
		Multiple bool
	}
	Reject struct {
		Tag     uint64
		Requeue bool
	}
	Nack struct {
		Tag               uint64
		Multiple, Requeue bool
	}
	Recover struct{ Requeue, Async bool }
)

func decodeBasic(method uint16, r *reader) any {
	switch method {
	case 10:
		return &Qos{r.u32(), r.u16(), r.u8()&1 != 0}
	case 20:
		_ = r.u16()
		m := &Consume{Queue: r.short(), Tag: r.short()}
		bits := r.u8()
		m.NoLocal, m.NoAck, m.Exclusive, m.NoWait = bits&1 != 0, bits&2 != 0, bits&4 != 0, bits&8 != 0
		m.Arguments = r.table()
		return m
	case 30:
		return &Cancel{r.short(), r.u8()&1 != 0}
	case 31:
		return &CancelOk{r.short()}
	case 40:
		_ = r.u16()
		m := &Publish{Exchange: r.short(), Key: r.short()}
		bits := r.u8()
		m.Mandatory, m.Immediate = bits&1 != 0, bits&2 != 0
		return m
	case 70:
		_ = r.u16()
		return &Get{r.short(), r.u8()&1 != 0}
	case 80:
		return &Ack{r.u64(), r.u8()&1 != 0}
	case 90:
		return &Reject{r.u64(), r.u8()&1 != 0}
	case 100:
		return &Recover{r.u8()&1 != 0, true}
	case 110:
		return &Recover{r.u8()&1 != 0, false}
	case 120:
		m := &Nack{Tag: r.u64()}
		bits := r.u8()
		m.Multiple, m.Requeue = bits&1 != 0, bits&2 != 0
		return m
	}
	return nil
}
