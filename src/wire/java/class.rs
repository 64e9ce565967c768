//! The classes that are read and written, and what Java says about each.

/// A class of the subset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Class {
    Boolean,
    Byte,
    Short,
    Character,
    Integer,
    Long,
    Float,
    Double,
    Number,
    ByteArray,
    HashMap,
    Hashtable,
    /// The ones from here on are only in objects, never in bodies of messages.
    Properties,
    Vector,
    ObjectArray,
}

/// How a class describes itself in a stream.
#[derive(Debug, Clone, Copy)]
pub(super) struct Description {
    pub(super) name: &'static str,
    /// `serialVersionUID`.
    pub(super) uid: u64,
    pub(super) flags: u8,
    /// Type letter, name and, for objects, type of each field.
    pub(super) fields: &'static [Field],
    pub(super) parent: Option<Class>,
}

/// Type letter, name, and the type of an object.
pub(super) type Field = (u8, &'static str, &'static str);

/// Flag of a class that is written field by field.
pub(super) const SERIALIZABLE: u8 = 2;
/// Flag of a class that also writes data of its own.
const WRITES_ITSELF: u8 = 3;

/// Fields of both map classes.
const MAP_FIELDS: &[Field] = &[(b'F', "loadFactor", ""), (b'I', "threshold", "")];

const VECTOR_FIELDS: &[Field] = &[
    (b'I', "capacityIncrement", ""),
    (b'I', "elementCount", ""),
    (b'[', "elementData", "[Ljava/lang/Object;"),
];

impl Class {
    pub(super) const COUNT: usize = 15;

    /// Those in bodies of messages.
    const IN_MESSAGES: [Self; 12] = [
        Self::Boolean,
        Self::Byte,
        Self::Short,
        Self::Character,
        Self::Integer,
        Self::Long,
        Self::Float,
        Self::Double,
        Self::Number,
        Self::ByteArray,
        Self::HashMap,
        Self::Hashtable,
    ];

    /// The class of this name, if messages have it.
    pub(super) fn named(name: &[u8]) -> Option<Self> {
        Self::IN_MESSAGES.into_iter().find(|class| class.description().name.as_bytes() == name)
    }

    pub(super) const fn description(self) -> Description {
        const fn boxed(name: &'static str, uid: u64, fields: &'static [Field]) -> Description {
            Description { name, uid, flags: SERIALIZABLE, fields, parent: Some(Class::Number) }
        }
        match self {
            Self::Boolean => Description {
                name: "java.lang.Boolean",
                uid: 0xCD20_7280_D59C_FAEE,
                flags: SERIALIZABLE,
                fields: &[(b'Z', "value", "")],
                parent: None,
            },
            Self::Character => Description {
                name: "java.lang.Character",
                uid: 0x348B_47D9_6B1A_2678,
                flags: SERIALIZABLE,
                fields: &[(b'C', "value", "")],
                parent: None,
            },
            Self::Byte => boxed("java.lang.Byte", 0x9C4E_6084_EE50_F51C, &[(b'B', "value", "")]),
            Self::Short => boxed("java.lang.Short", 0x684D_3713_3460_DA52, &[(b'S', "value", "")]),
            Self::Integer => {
                boxed("java.lang.Integer", 0x12E2_A0A4_F781_8738, &[(b'I', "value", "")])
            }
            Self::Long => boxed("java.lang.Long", 0x3B8B_E490_CC8F_23DF, &[(b'J', "value", "")]),
            Self::Float => boxed("java.lang.Float", 0xDAED_C9A2_DB3C_F0EC, &[(b'F', "value", "")]),
            Self::Double => {
                boxed("java.lang.Double", 0x80B3_C24A_296B_FB04, &[(b'D', "value", "")])
            }
            Self::Number => Description {
                name: "java.lang.Number",
                uid: 0x86AC_951D_0B94_E08B,
                flags: SERIALIZABLE,
                fields: &[],
                parent: None,
            },
            Self::ByteArray => Description {
                name: "[B",
                uid: 0xACF3_17F8_0608_54E0,
                flags: SERIALIZABLE,
                fields: &[],
                parent: None,
            },
            Self::HashMap => Description {
                name: "java.util.HashMap",
                uid: 0x0507_DAC1_C316_60D1,
                flags: WRITES_ITSELF,
                fields: MAP_FIELDS,
                parent: None,
            },
            Self::Hashtable => Description {
                name: "java.util.Hashtable",
                uid: 0x13BB_0F25_214A_E4B8,
                flags: WRITES_ITSELF,
                fields: MAP_FIELDS,
                parent: None,
            },
            Self::Properties => Description {
                name: "java.util.Properties",
                uid: 0x3912_D07A_7036_3E98,
                flags: SERIALIZABLE,
                fields: &[(b'L', "defaults", "Ljava/util/Properties;")],
                parent: Some(Self::Hashtable),
            },
            Self::Vector => Description {
                name: "java.util.Vector",
                uid: 0xD997_7D5B_803B_AF01,
                flags: WRITES_ITSELF,
                fields: VECTOR_FIELDS,
                parent: None,
            },
            Self::ObjectArray => Description {
                name: "[Ljava.lang.Object;",
                uid: 0x90CE_589F_1073_296C,
                flags: SERIALIZABLE,
                fields: &[],
                parent: None,
            },
        }
    }
}

/// The first bytes of every stream.
pub(super) const STREAM_HEADER: [u8; 4] = [0xAC, 0xED, 0x00, 0x05];
/// The first handle; they count up from here.
pub(super) const FIRST_HANDLE: i32 = 0x007E_0000;
/// The load factor of both map classes, 0.75.
pub(super) const LOAD_FACTOR: f32 = 0.75;

pub(super) const TC_NULL: u8 = 0x70;
pub(super) const TC_REFERENCE: u8 = 0x71;
pub(super) const TC_CLASSDESC: u8 = 0x72;
pub(super) const TC_OBJECT: u8 = 0x73;
pub(super) const TC_STRING: u8 = 0x74;
pub(super) const TC_ARRAY: u8 = 0x75;
pub(super) const TC_BLOCKDATA: u8 = 0x77;
pub(super) const TC_ENDBLOCKDATA: u8 = 0x78;
pub(super) const TC_BLOCKDATALONG: u8 = 0x7A;
pub(super) const TC_LONGSTRING: u8 = 0x7C;
pub(super) const TC_ENUM: u8 = 0x7E;
