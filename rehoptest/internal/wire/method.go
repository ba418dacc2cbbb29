package wire

// Classes of methods.
const (
	ClassConnection = 10
	ClassChannel    = 20
	ClassExchange   = 40
	ClassQueue      = 50
	ClassBasic      = 60
	ClassConfirm    = 85
	ClassTx         = 90
)

// ID is a class and a method of it.
type ID struct{ Class, Method uint16 }

// Methods that a server speaks of by number.
var (
	IDChannelOpen    = ID{ClassChannel, 10}
	IDConnectionOpen = ID{ClassConnection, 40}
	IDStartOk        = ID{ClassConnection, 11}
	IDTuneOk         = ID{ClassConnection, 31}
	IDPublish        = ID{ClassBasic, 40}
)

// DecodeMethod decodes the payload of a method frame: a pointer to one of the
// types of this package, or a *Unknown.
func DecodeMethod(payload []byte) (ID, any, error) {
	r := reader{b: payload}
	id := ID{r.u16(), r.u16()}
	if r.err != nil {
		return id, nil, r.err
	}
	var m any
	switch id.Class {
	case ClassConnection:
		m = decodeConnection(id.Method, &r)
	case ClassChannel:
		m = decodeChannel(id.Method, &r)
	case ClassExchange:
		m = decodeExchange(id.Method, &r)
	case ClassQueue:
		m = decodeQueue(id.Method, &r)
	case ClassBasic:
		m = decodeBasic(id.Method, &r)
	case ClassConfirm:
		if id.Method == 10 {
			m = &ConfirmSelect{NoWait: r.u8()&1 != 0}
		}
	}
	if m == nil {
		return id, &Unknown{id}, nil
	}
	if id != IDPublish && r.text != nil {
		return id, m, r.text
	}
	return id, m, r.end()
}

// Unknown is a method that this server does not know.
type Unknown struct{ ID }

// ConfirmSelect is confirm.select.
type ConfirmSelect struct{ NoWait bool }
